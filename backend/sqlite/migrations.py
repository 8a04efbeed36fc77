"""Databases of earlier formats: what makes each one of the next format, inside a transaction."""

import sqlite3
from collections.abc import Callable, Mapping

from backend.lines import foreign_line
from backend.run_lines import run_lines
from backend.sqlite import segments
from backend.sqlite.logs import INSERT_RUN_LINE
from backend.sqlite.segments import Part

_PENDING = "CREATE TABLE pending (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT"
_RUNS = (
    """CREATE TABLE run_line (
        log    INTEGER NOT NULL REFERENCES log (id) ON DELETE CASCADE,
        n      INTEGER NOT NULL,
        kind   TEXT    NOT NULL CHECK (kind IN ('user', 'start', 'done')),
        run    TEXT    NOT NULL,
        client TEXT,
        PRIMARY KEY (log, n)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX run_line_run ON run_line (log, run)",
    "CREATE INDEX run_line_client ON run_line (log, client) WHERE client IS NOT NULL",
    """CREATE TABLE live_run (
        session INTEGER PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
        run     TEXT    NOT NULL
    ) STRICT""",
)


def _add_runs(connection: sqlite3.Connection) -> None:
    for statement in _RUNS:
        connection.execute(statement)
    for log, n, *blobs in connection.execute("SELECT log, n, entries, messages, events FROM segment"):
        part = Part(*blobs)
        lines = [foreign_line(row.stream, row.raw) for row in segments.unpack(part, n, n, n + part.length)]
        for line in run_lines(lines, n):
            connection.execute(INSERT_RUN_LINE, (log, line.n, line.kind, line.run, line.client))


MIGRATIONS: Mapping[int, Callable[[sqlite3.Connection], object]] = {
    1: lambda connection: connection.execute(_PENDING),
    2: _add_runs,
}
"""Format version → what makes a database of it one of the next version (without its ``user_version``)."""
