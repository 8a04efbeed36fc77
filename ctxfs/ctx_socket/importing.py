"""``import`` and ``import-many``: entries with their own times, into sessions that are new or go on (spec 1.9, 4.2).

The agent is made by mkdir, as ever, and everything else of an import is file operations too; only times and a header
cannot be written into a file. Lines are judged here, on trio's thread, by the rules of all lines from outside. Many
sessions share one transaction, but each gets its lines or is refused on its own.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backend.errors import CtxError, InvalidValue, Missing, StoreFailed, StoreFull
from backend.lines import parse_line
from backend.log_contract import scope_of
from backend.names import is_uuid
from backend.rows import Append, Appended, Line, Owner, Session, Source
from ctxfs.bridge import Bridge
from ctxfs.ctx_socket import reach
from ctxfs.ctx_socket.requests import Import, ImportMany, Part
from ctxfs.sockets.connection import Connection, Peer
from ctxfs.sockets.frames import MAX_LINE_FRAME, FrameTooLong, error_frame

if TYPE_CHECKING:
    from ctxfs.core import Core

Judged = list[Line] | CtxError
Result = int | Exception


async def import_entries(bridge: Bridge, connection: Connection, request: Import) -> None:
    """Receives the lines, appends all or none of them, and answers with the session's number of entries.

    A refusal comes after all lines were received, so that the connection goes on.
    """
    [result] = await _imported(bridge, connection, request, [request])
    if isinstance(result, Exception):
        raise result
    await connection.send({"type": "imported", "n": result})


async def import_many(bridge: Bridge, connection: Connection, request: ImportMany) -> None:
    """As ``import_entries`` for each session; the answer has a number or a refusal for each, in order."""
    results = await _imported(bridge, connection, request, request.sessions)
    frames = [error_frame(result) if isinstance(result, Exception) else {"n": result} for result in results]
    await connection.send({"type": "imported", "sessions": frames})


async def _imported(
    bridge: Bridge, connection: Connection, request: Import | ImportMany, parts: Sequence[Part]
) -> Sequence[Result]:
    peer = connection.peer
    raws, too_long = await _receive(connection, sum(len(part.entries) for part in parts))
    owner = await bridge.run(lambda core: _owner(core, peer, request))
    if too_long is not None:
        raise too_long
    remaining = iter(raws)
    judged = [_judged(part, [next(remaining) for _ in part.entries], scope_of(owner.space)) for part in parts]
    return await bridge.perform(lambda core: _append(core, peer, owner, parts, judged))


def _judged(part: Part, raws: Sequence[bytes], scope: str) -> Judged:
    try:
        if part.uuid is not None and not is_uuid(part.uuid):
            raise InvalidValue("uuid is a UUID in its canonical form")
        return [parse_line(stream, raw, scope=scope) for (stream, _), raw in zip(part.entries, raws, strict=True)]
    except CtxError as error:
        return error


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


def _owner(core: "Core", peer: Peer, request: Import | ImportMany) -> Owner:
    return reach.owner_of(core, reach.space_of(core, peer, request, reach.CHANGE), request.agent)


async def _append(
    core: "Core", peer: Peer, owner: Owner, parts: Sequence[Part], judged: Sequence[Judged]
) -> Sequence[Result]:
    results: dict[int, Result] = {}
    appends: dict[int, Append] = {}
    for index, (part, lines) in enumerate(zip(parts, judged, strict=True)):
        if index:
            await core.commits.others_first()
        try:
            session = _session(core, peer, owner, part, lines)
        except CtxError as error:
            results[index] = error
            continue
        results[index] = session.n
        if part.entries and not isinstance(lines, CtxError):
            appends[index] = Append(session.id, lines, part.expected_n, [time for _, time in part.entries])
    changes = core.commits.append_all(list(appends.values())) if appends else ()
    results |= dict(zip(appends, (_outcome(core, change) for change in changes), strict=True))
    done = (part for index, part in enumerate(parts) if not isinstance(results[index], Exception))
    _map(core, owner, {part.uuid: part.session for part in done if part.uuid is not None})
    for change in changes:
        if isinstance(change, Appended):
            await core.commits.shown(change)
    return [results[index] for index in range(len(parts))]


def _outcome(core: "Core", change: Appended | Exception) -> Result:
    if isinstance(change, StoreFull | StoreFailed):
        core.health.failed(change)
    return change if isinstance(change, Exception) else change.session.n


def _session(core: "Core", peer: Peer, owner: Owner, part: Part, lines: Judged) -> Session:
    """The session, made if it is new (``CtxError``: it, or the part for it, is refused)."""
    if isinstance(lines, CtxError):
        raise lines
    return reach.session_of(core, owner, part.session) or _make(core, peer, owner, part)


def _make(core: "Core", peer: Peer, owner: Owner, part: Part) -> Session:
    if part.expected_n:
        raise Missing(f"no session {part.session!r}")
    uid = peer.uid if owner.space.startswith("shared/") else owner.uid
    source = Source(part.created_at, part.title, part.origin)
    session = core.store.create_session(owner.id, part.session, uid, source=source)
    core.kernel.session_made(owner.id, session)
    return session


def _map(core: "Core", owner: Owner, sessions: dict[str, str]) -> None:
    known = ((uuid, core.store.mapping(owner.id, "by-uuid", uuid)) for uuid in sessions)
    new = {uuid: sessions[uuid] for uuid, old in known if old is None or old.session != sessions[uuid]}
    if new:
        core.store.set_mappings(owner.id, "by-uuid", new)
        core.kernel.mapped(owner.id, "by-uuid", *new)
