"""``import``: entries with their own times, into a session that is new or goes on (spec 1.9, 4.2).

The agent is made by mkdir, as ever, and everything else of an import is file operations too; only times and a header
cannot be written into a file. Lines are judged here, on trio's thread, by the rules of all lines from outside.
"""

from typing import TYPE_CHECKING

from backend.errors import InvalidValue, Missing
from backend.lines import parse_line
from backend.log_contract import scope_of
from backend.store import Append, Line, Owner, Session, Source
from ctxfs.bridge import Bridge
from ctxfs.ctx_socket import reach
from ctxfs.ctx_socket.requests import Import
from ctxfs.sockets.connection import Connection, Peer
from ctxfs.sockets.frames import MAX_LINE_FRAME, FrameTooLong

if TYPE_CHECKING:
    from ctxfs.core import Core


async def import_entries(bridge: Bridge, connection: Connection, request: Import) -> None:
    """Receives the lines, appends all or none of them, and answers with the session's number of entries.

    A refusal comes after all lines were received, so that the connection goes on.
    """
    peer = connection.peer
    raws, too_long = await _receive(connection, len(request.entries))
    owner = await bridge.run(lambda core: _owner(core, peer, request))
    if too_long is not None:
        raise too_long
    scope = scope_of(owner.space)
    streams = [stream for stream, _ in request.entries]
    lines = [parse_line(stream, raw, scope=scope) for stream, raw in zip(streams, raws, strict=True)]
    n = await bridge.perform(lambda core: _append(core, peer, owner, request, lines))
    await connection.send({"type": "imported", "n": n})


async def _receive(connection: Connection, count: int) -> tuple[list[bytes], FrameTooLong | None]:
    """All lines, and why they are refused: one that is too long, or more than 1 MiB of them where they are many."""
    raws, size, refusal = list[bytes](), 0, None
    for _ in range(count):
        try:
            raw = await connection.receive(MAX_LINE_FRAME)
        except FrameTooLong as error:
            refusal = error
            continue
        if raw is None:
            raise InvalidValue("the stream ended before the last line")
        size += len(raw) + 1
        if size > MAX_LINE_FRAME:
            refusal = FrameTooLong("the lines of one request have more than 1 MiB: send fewer at once")
            raws.clear()
        if refusal is None:
            raws.append(raw)
    return raws, refusal


def _owner(core: "Core", peer: Peer, request: Import) -> Owner:
    return reach.owner_of(core, reach.space_of(core, peer, request, reach.CHANGE), request.agent)


async def _append(core: "Core", peer: Peer, owner: Owner, request: Import, lines: list[Line]) -> int:
    session = reach.session_of(core, owner, request.session) or _make(core, peer, owner, request)
    if not lines:
        return session.n
    times = [time for _, time in request.entries]
    return (await core.commits.append(Append(session.id, lines, request.expected_n, times))).session.n


def _make(core: "Core", peer: Peer, owner: Owner, request: Import) -> Session:
    if request.expected_n:
        raise Missing(f"no session {request.session!r}")
    uid = peer.uid if owner.space.startswith("shared/") else owner.uid
    source = Source(request.created_at, request.title, request.origin)
    session = core.store.create_session(owner.id, request.session, uid, source=source)
    core.kernel.session_made(owner.id, session)
    return session
