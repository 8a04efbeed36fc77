"""``sessions``: what the files of an agent's live sessions say of them, all at once (spec 4.1, ``session list``).

By file operations that is several requests a session. Page by page, so that nobody waits for an agent with many.
"""

from typing import Any

from backend.rows import Session
from backend.strict_json import compact
from ctxfs.bridge import Bridge
from ctxfs.ctx_socket import reach
from ctxfs.ctx_socket.requests import Sessions
from ctxfs.sockets.connection import Connection


async def list_sessions(bridge: Bridge, connection: Connection, request: Sessions) -> None:
    """A frame a session, the oldest first, then ``end``."""
    space = await bridge.run(lambda core: reach.space_of(core, connection.peer, request, reach.READ))
    owner = await bridge.run(lambda core: reach.owner_of(core, space, request.agent))
    count, after = 0, 0
    while page := await reach.sessions_after(bridge, owner, after):
        await connection.send_lines(compact(_frame(session)) for session in page)
        count += len(page)
        after = page[-1].id
    await connection.send({"type": "end", "sessions": count})


def _frame(session: Session) -> dict[str, Any]:
    return {
        "type": "session",
        "name": session.name,
        "id": session.session_id,
        "state": session.state,
        "created_at": session.created_at // 1000,
        "updated_at": session.updated_at // 1000,
        "entries": session.n,
        "size": session.messages_size + session.events_size,
        "cwd": session.cwd,
        "parent": session.parent,
        "at": session.at,
        "seq": session.seq,
        "uid": session.uid,
    }
