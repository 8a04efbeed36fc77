"""The data structures of the memory store: ordered rows, logs that share prefixes, an owner's index.

Pure and unsynchronised; nothing here knows the contract, clocks or errors.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from backend.facts import advance
from backend.lines import foreign_line
from backend.log_contract import listed_key
from backend.rows import Kind, Line, Row, RunLine, Session, Stream
from backend.run_lines import RunIndex

_STEP = 64


class HasId(Protocol):
    """A row with its id."""

    @property
    def id(self) -> int: ...


T = TypeVar("T", bound=HasId)


class Rows(Generic[T]):
    """Rows by id, in order of id: a page costs what it holds."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._rows: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[T]:
        return (self._rows[id] for id in self._ids)

    def get(self, id: int) -> T | None:
        return self._rows.get(id)

    def put(self, row: T) -> None:
        """Adds a row, or replaces the one of that id."""
        if row.id not in self._rows:
            insort(self._ids, row.id)
        self._rows[row.id] = row

    def pop(self, id: int) -> None:
        del self._ids[bisect_left(self._ids, id)]
        del self._rows[id]

    def page(self, after: int, limit: int) -> list[T]:
        start = bisect_right(self._ids, after)
        return [self._rows[id] for id in self._ids[start : start + limit]]


class _Entry(msgspec.Struct, frozen=True, gc=False):
    time: int
    kind: Kind
    stream: Stream
    offset: int
    length: int


class Log:
    """A session's entries and stream bytes; a branch keeps its parent's log and holds only what follows.

    ``states`` are the session's rows after each append and within long ones, the first as it was made: what a branch
    at any entry starts from. Offsets and entry numbers are those of the whole session.
    """

    def __init__(self, made: Session, base: "Log | None" = None) -> None:
        self._base = base
        self._first_n = made.n
        self._first: dict[Stream, int] = {"messages": made.messages_size, "events": made.events_size}
        self._data: dict[Stream, bytearray] = {"messages": bytearray(), "events": bytearray()}
        self._entries: list[_Entry] = []
        self._states = [made]
        self._runs = RunIndex()

    @property
    def own_bytes(self) -> int:
        return sum(map(len, self._data.values()))

    def extend(self, lines: Sequence[Line], times: Sequence[int], after: Session) -> None:
        self._runs.extend(lines, self._first_n + len(self._entries))
        for line, time in zip(lines, times, strict=True):
            data = self._data[line.stream]
            offset = self._first[line.stream] + len(data)
            self._entries.append(_Entry(time, line.kind, line.stream, offset, len(line.raw)))
            data += line.raw + b"\n"
        self._states += _between(self._states[-1], lines, times)
        self._states.append(after)

    def read(self, stream: Stream, offset: int, size: int) -> bytes:
        pieces: list[bytes] = []
        end, log = offset + size, self
        while True:
            first = log._first[stream]
            if end > first:
                pieces.append(bytes(log._data[stream][max(offset - first, 0) : end - first]))
            if offset >= first or log._base is None:
                return b"".join(reversed(pieces))
            end, log = min(end, first), log._base

    def row(self, n: int) -> Row:
        log = self._holder(n)
        entry = log._entries[n - log._first_n]
        return Row(n, entry.time, entry.kind, entry.stream, self.read(entry.stream, entry.offset, entry.length))

    def at(self, n: int) -> Session:
        """The session as it was when it had ``n`` entries."""
        log = self._holder(n)
        state = log._states[bisect_right(log._states, n, key=lambda state: state.n) - 1]
        rows = [self.row(number) for number in range(state.n, n)]
        if not rows:
            return state
        lines = [msgspec.structs.replace(foreign_line(row.stream, row.raw), kind=row.kind) for row in rows]
        return advance(state, lines, time_ms=rows[-1].time, now_ns=state.updated_mtime, seq=state.seq)[0]

    def starts(self, client: str) -> Sequence[RunLine]:
        """Starts of a client id, in log order."""
        return [line for log, stop in reversed(self._chain()) for line in log._runs.starts(client, stop)]

    def run_lines(self, run: str) -> Sequence[RunLine]:
        """Lines of a run, in log order."""
        return [line for log, stop in reversed(self._chain()) for line in log._runs.lines(run, stop)]

    def _chain(self) -> "list[tuple[Log, int]]":
        """This log and those that it shares a prefix of, each with the entry before which it counts."""
        chain = [(self, self._first_n + len(self._entries))]
        while (base := chain[-1][0]._base) is not None:
            chain.append((base, chain[-1][0]._first_n))
        return chain

    def _holder(self, n: int) -> "Log":
        """The log of the chain that holds entry ``n`` itself."""
        log = self
        while n < log._first_n and log._base is not None:
            log = log._base
        return log


def _between(state: Session, lines: Sequence[Line], times: Sequence[int]) -> Iterator[Session]:
    """A session at every few of the lines that it is given, but for the last, as far as a branch has to know it."""
    for start in range(0, len(lines) - _STEP, _STEP):
        step = slice(start, start + _STEP)
        state, _ = advance(state, lines[step], time_ms=times[step][-1], now_ns=state.updated_mtime, seq=state.seq)
        yield state


class IndexChange(msgspec.Struct, frozen=True):
    """Whether index/list changed, and the by-cwd keys whose session did, with their new one (None: gone)."""

    listed: bool
    keys: dict[str, int | None]


class OwnerIndex:
    """The live sessions of an owner: by name, by id, by last update, and by the cwd they recorded."""

    def __init__(self) -> None:
        self.rows: Rows[Session] = Rows()
        self.names: dict[str, int] = {}
        self._updated: dict[int, None] = {}
        self._recorded: dict[str, dict[int, None]] = {}

    def by_update(self) -> Iterator[Session | None]:
        """Sessions, the last updated first."""
        return map(self.rows.get, reversed(self._updated))

    def put(self, session: Session) -> IndexChange:
        """Takes a new session, or one that an append has changed."""
        before = self.rows.get(session.id)
        keys: dict[str, int | None] = {}
        if before is None or before.cwd_seq != session.cwd_seq:
            old = None if before is None else listed_key(before)
            new = listed_key(session)
            keys = self._move(session.id, old, new)
        listed = next(reversed(self._updated), None) != session.id
        self._updated.pop(session.id, None)
        self._updated[session.id] = None
        self.names[session.name] = session.id
        self.rows.put(session)
        return IndexChange(listed, keys)

    def remove(self, session: Session) -> IndexChange:
        keys = self._move(session.id, listed_key(session), None)
        del self._updated[session.id]
        del self.names[session.name]
        self.rows.pop(session.id)
        return IndexChange(True, keys)

    def _move(self, id: int, old: str | None, new: str | None) -> dict[str, int | None]:
        touched = [key for key in dict.fromkeys((old, new)) if key is not None]
        before = {key: self._holder(key) for key in touched}
        if old is not None:
            del self._recorded[old][id]
        if new is not None:
            self._recorded.setdefault(new, {})[id] = None
        after = {key: self._holder(key) for key in touched}
        return {key: after[key] for key in touched if after[key] != before[key]}

    def _holder(self, key: str) -> int | None:
        return next(reversed(self._recorded.get(key, {})), None)
