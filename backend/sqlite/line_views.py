"""Tables that say of some lines what else one would have to read them for: ``run_line`` and ``value_line``.

They are views of ``segment`` (schema.sql says what for), changed in the transaction that changes that.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from backend.lines import foreign_line
from backend.rows import Line
from backend.run_lines import run_lines
from backend.sqlite import segments
from backend.sqlite.segments import UNREADABLE, Part

_END = 1 << 62
_SEGMENTS = "SELECT log, n, entries, messages, events FROM segment"
Said = tuple[Any, ...]
"""A row without its log: the entry's number first."""


class LineView(NamedTuple):
    """``rows``: what the table must say of consecutive lines, given the number of the first; ``words`` name it."""

    table: str
    columns: str
    rows: Callable[[Sequence[Line], int], Iterator[Said]]
    words: str

    @property
    def said(self) -> str:
        """The query for what it says of a log's entries from one on, below another."""
        return f"SELECT {self.columns} FROM {self.table} WHERE log = ? AND n >= ? AND n < ? ORDER BY n"

    def add(self, connection: sqlite3.Connection, log: int, rows: Iterable[Said]) -> None:
        """Inside a transaction."""
        values = ", ".join("?" * (self.columns.count(",") + 2))
        sql = f"INSERT INTO {self.table} (log, {self.columns}) VALUES ({values})"
        connection.executemany(sql, ((log, *row) for row in rows))

    def remove(self, connection: sqlite3.Connection, log: int, start: int, stop: int = _END) -> None:
        """What it says of entries from ``start`` on, below ``stop``; inside a transaction."""
        connection.execute(f"DELETE FROM {self.table} WHERE log = ? AND n >= ? AND n < ?", (log, start, stop))


class Wrong(NamedTuple):
    """What a view must say of the entries of a segment, and does not."""

    view: LineView
    log: int
    start: int
    stop: int
    wanted: Sequence[Said]

    def mend(self, connection: sqlite3.Connection) -> None:
        """Inside a transaction."""
        self.view.remove(connection, self.log, self.start, self.stop)
        self.view.add(connection, self.log, self.wanted)


def wrong_views(connection: sqlite3.Connection) -> Iterator[Wrong]:
    """What does not say what it must, segment by segment; those that cannot be read are passed over."""
    for log, first, *blobs in connection.execute(_SEGMENTS):
        try:
            lines = _lines(Part(*blobs), first)
        except UNREADABLE:
            continue
        stop = first + len(lines)
        for view in LINE_VIEWS:
            wanted = list(view.rows(lines, first))
            if connection.execute(view.said, (log, first, stop)).fetchall() != wanted:
                yield Wrong(view, log, first, stop, wanted)


def lines_of_segments(connection: sqlite3.Connection) -> Iterator[tuple[int, int, Sequence[Line]]]:
    """All lines there are: the log, the number of the first, and lines that follow one another (``UNREADABLE``)."""
    for log, first, *blobs in connection.execute(_SEGMENTS):
        yield log, first, _lines(Part(*blobs), first)


def _lines(part: Part, first: int) -> Sequence[Line]:
    return [foreign_line(row.stream, row.raw) for row in segments.unpack(part, first, first, first + part.length)]


class Values(NamedTuple):
    """What a line sets, None for what it does not (``value_line``)."""

    latest_size: int | None = None
    state: str | None = None
    cwd: str | None = None
    meta: str | None = None


NO_VALUES = Values()


def _runs(lines: Sequence[Line], first: int) -> Iterator[Said]:
    return ((line.n, line.kind, line.run, line.client) for line in run_lines(lines, first))


def _values(lines: Sequence[Line], first: int) -> Iterator[Said]:
    for n, line in enumerate(lines, first):
        values = line.latest_size, line.state, line.cwd, line.meta
        if values != NO_VALUES:
            yield n, *values


RUN_LINES = LineView("run_line", "n, kind, run, client", _runs, "runs")
VALUE_LINES = LineView("value_line", "n, latest_size, state, cwd, meta", _values, "values")
LINE_VIEWS = (RUN_LINES, VALUE_LINES)
