"""Logs in SQL: appending packed lines, reading ranges across branches, what an entry's prefix amounts to, removal.

Implements specs 2.1 and 2.8 on the tables ``log`` and ``segment``, whose invariants schema.sql states. Writing must be
inside a transaction of the caller. Entry numbers and offsets are those of the whole session (``Checkpoint``).
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from backend.rows import MAX_RUN_LINES, Line, Row, RunLine, Stream
from backend.run_lines import MAX_STARTS
from backend.sqlite import segments
from backend.sqlite.database import Database
from backend.sqlite.line_views import LINE_VIEWS, NO_VALUES, Values
from backend.sqlite.segments import BEGINNING, Checkpoint, Outline, Part

Axis = Literal["n", "messages", "events"]

SWEEP_BYTES = 1 << 20
"""What one step of ``sweep`` removes at most, so that no transaction of it takes long (but always a row)."""


RECENT_BYTES = 4 << 20
_WORTH_KEEPING = 32 << 10
_REMEMBERED = 4096
_BLOBS = "entries, messages, events"
_VALUES_N = "latest_n, state_n, cwd_n, meta_n"
_INSERT = (
    f"INSERT INTO segment (log, n, start, messages_start, events_start, {_VALUES_N}, {_BLOBS})"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_OUTLINE = (
    f"SELECT id, n, start, messages_start, events_start, {_VALUES_N}, entries, length(messages), length(events)"
    " FROM segment"
)
_WITH = f"{_OUTLINE} WHERE log = ? AND n <= ? ORDER BY n DESC LIMIT 1"
_VALUES = f"SELECT {', '.join(Values._fields)} FROM value_line WHERE log = ? AND n = ?"
_EXTENDED = ", ".join(f"{blob} = CAST({blob} || ? AS BLOB)" for blob in ("entries", "messages", "events"))
_EXTEND = f"UPDATE segment SET {_EXTENDED} WHERE id = ?"
_EXTEND_AND_START = (
    f"UPDATE segment SET {_EXTENDED}, messages_start = coalesce(messages_start, ?),"
    " events_start = coalesce(events_start, ?) WHERE id = ?"
)
_REPLACE = (
    "UPDATE segment SET messages_start = ?, events_start = ?, entries = ?, messages = ?, events = ?"
    " WHERE log = ? AND n = ?"
)
_SIZE = "length(entries) + length(messages) + length(events)"
_WEIGHTS = f"""SELECT n, start, {segments.RECORD_WEIGHT} * length(entries) + length(messages) + length(events)
    FROM segment WHERE log = ? ORDER BY n DESC"""
_PARTS = f"SELECT messages_start, events_start, {_BLOBS} FROM segment WHERE log = ? AND n BETWEEN ? AND ? ORDER BY n"
_BASE = f"SELECT parent, base_n, base_messages, base_events, {_VALUES_N} FROM log WHERE id = ?"
_FROM = "log = ? AND {0} >= (SELECT max({0}) FROM segment WHERE log = ? AND {0} <= ?) AND {0} < ? ORDER BY {0}"
_ROWS = f"SELECT n, {_BLOBS} FROM segment WHERE {_FROM.format('n')}"
_BYTES = {
    stream: f"SELECT {stream}_start, {stream} FROM segment WHERE {_FROM.format(f'{stream}_start')}"
    for stream in ("messages", "events")
}

_FIND_RUN_LINES = (
    "SELECT n, kind, run, client FROM run_line WHERE log = ? AND {} = ? AND n >= ? AND n < ? ORDER BY n LIMIT ?"
)
_STARTS, _RUN_LINES = _FIND_RUN_LINES.format("client"), _FIND_RUN_LINES.format("run")


class Tail(NamedTuple):
    """Where a log ends: its last row (None: it has none yet) with the bytes in it, its first entry and what follows."""

    segment: int | None
    size: int
    begin: Checkpoint
    end: Checkpoint


class Base(NamedTuple):
    """Where a log begins: the checkpoint in its parent."""

    parent: int | None
    end: Checkpoint


class Piece(NamedTuple):
    """The bytes of one row in a stream; those of a log never change."""

    start: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def cut(self, low: int, high: int) -> bytes | memoryview:
        """What of it is between two offsets, not copied."""
        if low <= self.start and self.end <= high:
            return self.data
        return memoryview(self.data)[max(low - self.start, 0) : high - self.start]


class Recent:
    """The row of each stream that was read in part last, for the read that goes on where that ended."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, Stream], Piece] = {}

    def find(self, log: int, stream: Stream, offset: int) -> Piece | None:
        piece = self._pieces.get((log, stream))
        return piece if piece is not None and piece.start <= offset < piece.end else None

    def add(self, log: int, stream: Stream, piece: Piece) -> None:
        """Remembers a row, and forgets the oldest above ``RECENT_BYTES`` in all (one may be bigger by itself)."""
        self._pieces.pop((log, stream), None)
        self._pieces[log, stream] = piece
        while len(self._pieces) > 1 and sum(len(held.data) for held in self._pieces.values()) > RECENT_BYTES:
            del self._pieces[next(iter(self._pieces))]


class Logs:
    """The logs of one database. What it remembers never changes, except by ``forget``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._bases: dict[int, Base] = {}
        self._recent = Recent()

    def forget(self) -> None:
        self._bases.clear()

    # writing

    def add(self, parent: int | None = None, base: Checkpoint = BEGINNING) -> int:
        """A new log that begins with that checkpoint of the log ``parent`` (or of one that it shares itself)."""
        while parent is not None and base.n <= (own := self.base(parent)).end.n:
            parent = own.parent
        return self._database.insert(
            "INSERT INTO log (parent, base_n, base_messages, base_events, latest_n, state_n, cwd_n, meta_n)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            parent,
            *base,
        )

    def append(self, log: int, tail: Tail, lines: Sequence[Line], times: Sequence[int]) -> Tail:
        """Stores lines behind ``tail``, the log's own; the new one."""
        for view in LINE_VIEWS:
            view.add(self._database.connection, log, view.rows(lines, tail.end.n))
        for line in lines:
            if line.run is not None and line.key == "done":
                self._database.run("DELETE FROM live_run WHERE session = ? AND run = ?", (log, line.run))
        if tail.segment is not None and tail.size + segments.packed_size(lines) <= segments.ROW_LIMIT:
            return self._extend(tail, lines, times)
        for chunk in segments.chunks(lines):
            tail = self._begin(log, tail, segments.pack(lines[chunk], times[chunk]))
        return tail

    def _extend(self, tail: Tail, lines: Sequence[Line], times: Sequence[int]) -> Tail:
        """Adds to the last row."""
        segment, size, begin, end = tail
        messages, events = end.messages - begin.messages, end.events - begin.events
        part = segments.pack(lines, times, messages, events)
        if (part.messages and not messages) or (part.events and not events):
            starts = (end.messages if part.messages else None, end.events if part.events else None)
            self._database.run(_EXTEND_AND_START, (*part, *starts, segment))
        else:
            self._database.run(_EXTEND, (*part, segment))
        return Tail(segment, size + part.size, begin, segments.after(end, part.outline))

    def _begin(self, log: int, tail: Tail, part: Part) -> Tail:
        begin = tail.end
        window = tail.begin.start // segments.WINDOW
        if tail.segment is not None and begin.start // segments.WINDOW > window:
            self._join(log, window * segments.WINDOW)
        starts = (begin.messages if part.messages else None, begin.events if part.events else None)
        segment = self._database.insert(_INSERT, log, begin.n, begin.start, *starts, *begin[3:], *part)
        return Tail(segment, part.size, begin, segments.after(begin, part.outline))

    def _join(self, log: int, start: int) -> None:
        """Joins the rows that begin at ``start`` or later, as far as they fit together."""
        rows = list(reversed(self._weights_from(log, start)))
        for run in segments.joinable([weight for _, weight in rows]):
            first, *_, last = (n for n, _ in rows[run])
            found = self._database.run(_PARTS, (log, first, last)).fetchall()
            starts = [next((row[column] for row in found if row[column] is not None), None) for column in (0, 1)]
            part = segments.join([Part(*row[2:]) for row in found])
            self._database.run("DELETE FROM segment WHERE log = ? AND n > ? AND n <= ?", (log, first, last))
            self._database.run(_REPLACE, (*starts, *part, log, first))

    def _weights_from(self, log: int, start: int) -> list[tuple[int, int]]:
        cursor = self._database.run(_WEIGHTS, (log,))
        found: list[tuple[int, int]] = []
        for n, at, weight in cursor:
            if at < start:
                break
            found.append((n, weight))
        cursor.close()
        return found

    # reading

    def base(self, log: int) -> Base:
        if log not in self._bases:
            if len(self._bases) >= _REMEMBERED:
                self.forget()
            parent, *end = self._database.one(_BASE, log)
            self._bases[log] = Base(parent, Checkpoint(*end))
        return self._bases[log]

    def tail(self, log: int) -> Tail:
        """Where the log ends, from its rows."""
        row = self._database.one(f"{_OUTLINE} WHERE log = ? ORDER BY n DESC LIMIT 1", log)
        if row is None:
            base = self.base(log).end
            return Tail(None, 0, base, base)
        segment, begin, part = _outline(row)
        return Tail(segment, part.size, begin, segments.after(begin, part))

    def read(self, log: int, stream: Stream, start: int, end: int) -> bytes:
        """The bytes of a stream, which must hold them."""
        pieces: list[bytes | memoryview] = []
        for owner, low, high in self._spans(log, stream, start, end):
            pieces += self._read_own(owner, stream, low, high)
        return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)

    def _read_own(self, log: int, stream: Stream, low: int, high: int) -> Iterator[bytes | memoryview]:
        if recent := self._recent.find(log, stream, low):
            yield recent.cut(low, high)
            low = recent.end
        if low >= high:
            return
        for at, data in self._database.all(_BYTES[stream], log, log, low, high):
            piece = Piece(at, data)
            yield piece.cut(low, high)
            if piece.end > high and len(data) >= _WORTH_KEEPING:
                self._recent.add(log, stream, piece)

    def rows(self, log: int, start: int, end: int) -> Iterator[Row]:
        """The entries from ``start`` up to ``end``, which must exist."""
        for owner, low, high in self._spans(log, "n", start, end):
            for n, *part in self._database.all(_ROWS, owner, owner, low, high):
                yield from segments.unpack(Part(*part), n, low, high)

    def starts(self, log: int, client: str, end: int) -> list[RunLine]:
        """Starts of a client id among the entries before ``end``."""
        return self._run_lines(_STARTS, MAX_STARTS, log, client, end)

    def run_lines(self, log: int, run: str, end: int) -> list[RunLine]:
        """Lines of a run among the entries before ``end``."""
        return self._run_lines(_RUN_LINES, MAX_RUN_LINES, log, run, end)

    def _run_lines(self, sql: str, most: int, log: int, key: str, end: int) -> list[RunLine]:
        found: list[RunLine] = []
        for owner, low, high in self._spans(log, "n", 0, end):
            found += (RunLine(*row) for row in self._database.all(sql, owner, key, low, high, most))
        return found[:most]

    def checkpoint(self, log: int, n: int) -> tuple[Checkpoint, int]:
        """What the first ``n`` entries amount to, and the ms time of the last of them (0 of none); reads no line."""
        if n == 0:
            return BEGINNING, 0
        _, begin, part = self._row_with(log, n - 1)
        whole = segments.begun(part, n - begin.n)
        return segments.after(begin, whole), segments.time_of(whole, whole.length - 1)

    def values(self, log: int, n: int | None) -> Values:
        """What an entry sets, which must set something; nothing, where there is no such entry."""
        if n is None:
            return NO_VALUES
        return Values(*self._database.one(_VALUES, self._owner(log, n), n))

    def _row_with(self, log: int, n: int) -> tuple[int, Checkpoint, Outline]:
        """The id, beginning and outline of the row that holds an entry."""
        return _outline(self._database.one(_WITH, self._owner(log, n), n))

    def _owner(self, log: int, n: int) -> int | None:
        """The log of the chain that holds an entry."""
        owner: int | None = log
        while owner is not None and n < (base := self.base(owner)).end.n:
            owner = base.parent
        return owner

    def _spans(self, log: int, axis: Axis, start: int, end: int) -> list[tuple[int, int, int]]:
        """The logs of the chain that hold a range, and which part of it, in order."""
        spans: list[tuple[int, int, int]] = []
        owner: int | None = log
        while owner is not None and start < end:
            base = self.base(owner)
            first: int = getattr(base.end, axis)
            if first < end:
                spans.append((owner, max(first, start), end))
                end = first
            owner = base.parent
        spans.reverse()
        return spans


def sweep(connection: sqlite3.Connection) -> bool:
    """One step of removing what no session and no child log needs, inside a transaction; whether more is to be done."""
    unused = connection.execute("SELECT log FROM unused_log LIMIT 1").fetchone()
    if unused is None:
        return False
    [log] = unused
    [needed] = connection.execute("SELECT max(base_n) FROM log WHERE parent = ?", (log,)).fetchone()
    if _remove_rows(connection, log, needed or 0):
        _remove_views(connection, log, needed or 0)
        if needed is None:
            _remove_log(connection, log)
        else:
            _cut_last_row(connection, log, needed)
            connection.execute("DELETE FROM unused_log WHERE log = ?", (log,))
    return connection.execute("SELECT 1 FROM unused_log LIMIT 1").fetchone() is not None


def _remove_rows(connection: sqlite3.Connection, log: int, needed: int) -> bool:
    """Removes rows that begin at entry ``needed`` or later, the last first; whether all are gone."""
    removed, first = 0, None
    cursor = connection.execute(
        f"SELECT n, {_SIZE} FROM segment WHERE log = ? AND n >= ? ORDER BY n DESC", (log, needed)
    )
    for first, size in cursor:  # noqa: B007
        removed += size
        if removed >= SWEEP_BYTES:
            break
    cursor.close()
    if first is None:
        return True
    connection.execute("DELETE FROM segment WHERE log = ? AND n >= ?", (log, first))
    _remove_views(connection, log, first)
    return removed < SWEEP_BYTES


def _remove_views(connection: sqlite3.Connection, log: int, first: int) -> None:
    for view in LINE_VIEWS:
        view.remove(connection, log, first)


def _cut_last_row(connection: sqlite3.Connection, log: int, needed: int) -> None:
    row = connection.execute(f"{_OUTLINE} WHERE log = ? ORDER BY n DESC LIMIT 1", (log,)).fetchone()
    if row is None:
        return
    segment, begin, part = _outline(row)
    if begin.n + part.length <= needed:
        return
    whole = connection.execute(f"SELECT {_BLOBS} FROM segment WHERE id = ?", (segment,)).fetchone()
    kept = segments.prefix(Part(*whole), needed - begin.n)
    starts = (begin.messages if kept.messages else None, begin.events if kept.events else None)
    connection.execute(_REPLACE, (*starts, *kept, log, begin.n))


def _remove_log(connection: sqlite3.Connection, log: int) -> None:
    [parent] = connection.execute("SELECT parent FROM log WHERE id = ?", (log,)).fetchone()
    connection.execute("DELETE FROM log WHERE id = ?", (log,))
    connection.execute(
        "INSERT OR IGNORE INTO unused_log SELECT id FROM log WHERE id = ?1"
        " AND NOT EXISTS (SELECT 1 FROM session WHERE id = ?1)",
        (parent,),
    )


def _outline(row: Sequence[Any]) -> tuple[int, Checkpoint, Outline]:
    """The id of a row of ``_OUTLINE``, the checkpoint at which it begins, and its outline."""
    segment, n, start, messages, events = row[:5]
    messages, events = start - events if messages is None else messages, start - messages if events is None else events
    return segment, Checkpoint(n, messages, events, *row[5:9]), Outline(*row[9:])
