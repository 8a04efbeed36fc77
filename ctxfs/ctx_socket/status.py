"""``status``: the mount's health, and how much is in a place."""

from typing import TYPE_CHECKING, Any

from backend.rows import Owner
from ctxfs.bridge import Bridge
from ctxfs.ctx_socket import reach
from ctxfs.ctx_socket.requests import Status
from ctxfs.sockets.connection import Connection
from ctxfs.version import version

if TYPE_CHECKING:
    from ctxfs.core import Core


async def status(bridge: Bridge, connection: Connection, request: Status) -> None:
    """One frame; the place is counted page by page, so that nobody waits for a big one."""
    space = await bridge.run(lambda core: reach.space_of(core, connection.peer, request, reach.READ))
    owners = await bridge.run(lambda core: reach.owners_of(core, space, None))
    counts = {"agents": 0, "sessions": 0, "bytes": 0, "unprovable": 0}
    for owner in owners:
        counts["agents"] += 1
        await _count(bridge, owner, counts)
    mount = await bridge.run(_mount)
    await connection.send({"type": "status", "version": version(), "space": space, **mount, **counts})


async def _count(bridge: Bridge, owner: Owner, counts: dict[str, int]) -> None:
    after = 0
    while page := await reach.sessions_after(bridge, owner, after):
        counts["sessions"] += len(page)
        counts["bytes"] += sum(session.messages_size + session.events_size for session in page)
        counts["unprovable"] += sum(session.fault is not None for session in page)
        after = page[-1].id


def _mount(core: "Core") -> dict[str, Any]:
    return {"failure": core.health.failure, "mounted_at": core.subjects.started_ns // 10**9}
