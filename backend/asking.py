"""Long work over a store that belongs to another thread: asked for a little at a time (``backend.store``, Threads).

Search and doctor run in threads of their own and read whole logs; meanwhile the store serves everybody else.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

from backend.rows import Row, Session, Stream
from backend.store import Store

T = TypeVar("T")

SESSIONS = 100
_NAMES = 1000
_ROWS, _STEP, _BYTES = 64, 16, 256 << 10


class Ask(Protocol):
    """Runs work of about a millisecond with the store, on the store's thread; returns or raises what it does."""

    def __call__(self, work: Callable[[Store], T], /) -> T: ...


def some_rows(session: int, first: int, stop: int, store: Store) -> Sequence[Row]:
    """Entries from ``first`` on, below ``stop``: as many as may be read at once, none at the end of the log."""
    rows: list[Row] = []
    size = 0
    while first < stop and len(rows) < _ROWS and size < _BYTES:
        found = store.rows(session, first, min(_STEP, stop - first))
        if not found:
            break
        rows += found
        first += len(found)
        size += sum(len(row.raw) for row in found)
    return rows


def rows_of(ask: Ask, session: int, stop: int, first: int = 0) -> Iterator[Row]:
    """The entries of a log from ``first`` on, below ``stop``."""
    while rows := ask(partial(some_rows, session, first, stop)):
        yield from rows
        first += len(rows)


def live_sessions(ask: Ask, owner: int) -> Iterator[Session]:
    """All live sessions of an owner, by id."""
    after = 0
    while page := ask(partial(_sessions_after, owner, after)):
        yield from page
        after = page[-1].id


def live_ids(ask: Ask, owner: int) -> dict[int, str]:
    """The ids of an owner's live sessions, and their names."""
    found: dict[int, str] = {}
    after = 0
    while page := ask(partial(_listed_after, owner, after)):
        found |= {session: name for session, name, *_ in page}
        after = page[-1][0]
    return found


def _listed_after(owner: int, after: int, store: Store) -> Sequence[tuple[int, str, int, int]]:
    return store.listing(owner, after, _NAMES)


def _sessions_after(owner: int, after: int, store: Store) -> Sequence[Session]:
    return store.sessions(owner, after, SESSIONS)


def read_stream(ask: Ask, session: int, stream: Stream, offset: int, size: int) -> bytes:
    """Bytes of a log file, at most 256 KiB at once."""
    return ask(lambda store: store.read_stream(session, stream, offset, min(size, _BYTES)))
