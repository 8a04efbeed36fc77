"""``resume``: a session's entries after a cursor, and on request those that follow (spec 3.2). On trio's thread."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import trio

from backend.errors import Missing
from backend.rows import Row
from backend.store import FileStore
from backend.strict_json import lenient_object
from ctxfs.agents.entries import frame_of
from ctxfs.agents.ledger import Ledger, Place
from ctxfs.agents.requests import Resume
from ctxfs.sockets.connection import Connection

_FEW, _MANY = 8, 128
_SMALL, _BIG = 64 << 10, 512 << 10


async def resume(connection: Connection, ledger: Ledger, place: Place, request: Resume) -> None:
    """Answers a request (``Missing``: no such session, or the cursor leads nowhere)."""
    session = await ledger.find(place)
    if session is None:
        raise Missing(f"no session {place.session!r}")
    start = await _after(ledger, session.id, session.n, request.after)
    if request.follow:
        await _follow(connection, ledger, session.id, start)
    else:
        end = await _send_from(connection, ledger, session.id, start)
        await connection.send({"n": end, "type": "end"})


async def _after(ledger: Ledger, session: int, n: int, after: str | int | None) -> int:
    """The first entry that is wanted. A cursor is a number, the first of these entries, or the id of one before."""
    if after is None:
        return 0
    if isinstance(after, int) or (after.isascii() and after.isdigit()):
        if not 0 <= (number := _number(after)) <= n:
            raise Missing("after: the session has no such entry")
        return number
    lines = await ledger.run_lines(session, after)
    started = [line.n for line in lines if line.kind == "start"]
    return 1 + (started[0] if started else await _find_call(ledger, session, after))


def _number(after: str | int) -> int:
    """A number of any length: what no log can have is -1."""
    return int(after) if isinstance(after, int) or len(after) < 20 else -1


async def _find_call(ledger: Ledger, session: int, id: str) -> int:
    """The entry that is a tool call, or a start by file, of that id."""
    async with aclosing(_pages(ledger, session, 0)) as pages:
        async for rows in pages:
            for row in rows:
                if row.stream == "events" and id.encode() in row.raw and _has_id(row.raw, id):
                    return row.n
    raise Missing("after: no start and no tool call has this id")


def _has_id(raw: bytes, id: str) -> bool:
    try:
        event: dict[str, Any] = lenient_object(raw)
    except ValueError:
        return False
    return event.get("type") in ("start", "tool_call") and event.get("id") == id


async def _pages(ledger: Ledger, session: int, start: int) -> AsyncGenerator[Sequence[Row], None]:
    """Entries from ``start`` on to the end, a few at a time: more where they are small."""
    count = _FEW
    while rows := await ledger.ask(partial(_rows, session=session, start=start, count=count)):
        yield rows
        start = rows[-1].n + 1
        size = sum(len(row.raw) for row in rows)
        if size > _BIG:
            count = _FEW
        elif size < _SMALL:
            count = min(2 * count, _MANY)


def _rows(store: FileStore, session: int, start: int, count: int) -> Sequence[Row]:
    return store.rows(session, start, count)


async def _send_from(connection: Connection, ledger: Ledger, session: int, start: int) -> int:
    """Sends the entries from ``start`` on; the number of the one that will be next."""
    async with aclosing(_pages(ledger, session, start)) as pages:
        async for rows in pages:
            await connection.send_lines(map(frame_of, rows))
            start = rows[-1].n + 1
    return start


async def _follow(connection: Connection, ledger: Ledger, session: int, start: int) -> None:
    """Sends entries as they come, until the client is gone."""
    grown, is_gone = trio.Event(), False

    def wake() -> None:
        grown.set()

    def gone() -> None:
        nonlocal is_gone
        is_gone = True
        grown.set()

    async with ledger.follow(session, wake):
        with connection.attended(lambda _: False, gone):
            while not is_gone:
                grown = trio.Event()
                start = await _send_from(connection, ledger, session, start)
                await grown.wait()
    raise trio.BrokenResourceError
