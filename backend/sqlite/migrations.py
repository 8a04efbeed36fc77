"""Databases of earlier formats: what makes each one of the next format, inside a transaction."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from backend.sqlite.line_views import RUN_LINES, VALUE_LINES, LineView, lines_of_segments

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
_VALUES = (
    """CREATE TABLE value_line (
        log         INTEGER NOT NULL REFERENCES log (id) ON DELETE CASCADE,
        n           INTEGER NOT NULL,
        latest_size INTEGER,
        state       TEXT,
        cwd         TEXT,
        meta        TEXT,
        PRIMARY KEY (log, n)
    ) STRICT, WITHOUT ROWID""",
)


def _add_view(view: LineView, statements: Sequence[str], connection: sqlite3.Connection) -> None:
    for statement in statements:
        connection.execute(statement)
    for log, first, lines in lines_of_segments(connection):
        view.add(connection, log, view.rows(lines, first))


MIGRATIONS: Mapping[int, Callable[[sqlite3.Connection], object]] = {
    1: lambda connection: connection.execute(_PENDING),
    2: partial(_add_view, RUN_LINES, _RUNS),
    3: partial(_add_view, VALUE_LINES, _VALUES),
}
"""Format version → what makes a database of it one of the next version (without its ``user_version``)."""
