"""The invariants that ``schema.sql`` states, looked for in a store nobody else uses, and what is derived made anew.

A check is a query that finds what is wrong, in words; where that is only derived, a statement that makes it right. What
is not, the log itself, is never repaired. Lines that wait (``pending``) are merged first by whoever asks.
"""

import sqlite3
from typing import NamedTuple

from backend.names import cwd_key
from backend.sqlite.line_views import LINE_VIEWS, LineView, wrong_views
from backend.sqlite.segments import RECORD_SIZE


class _Check(NamedTuple):
    """``find`` selects what is wrong as one text a row; ``repair`` is None where that is not only derived."""

    find: str
    repair: str | None = None


_SEGMENTS = f"""
    SELECT log, n, start, n + length(entries) / {RECORD_SIZE} AS end, start + length(messages) + length(events) AS stop,
           lead(n) OVER rows AS next_n, lead(start) OVER rows AS next_start
    FROM segment WINDOW rows AS (PARTITION BY log ORDER BY n)"""
_LIST_SIZE = """(SELECT coalesce(sum(length(CAST(name AS BLOB)) + 1), 0) FROM session
    WHERE owner = owner.id AND archive IS NULL)"""
_CURRENT_IS_GONE = """current IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM session WHERE owner = owner.id AND archive IS NULL AND name = current)"""
_KEY_IS_WRONG = "archive IS NULL AND cwd_key IS NOT CASE WHEN cwd_seq > 0 THEN key_of(cwd) END"
_HOLDER = """(SELECT id FROM session WHERE session.owner = mapping.owner AND archive IS NULL AND cwd_key = mapping.key
    ORDER BY cwd_seq DESC LIMIT 1)"""
_UNUSED = """id NOT IN (SELECT id FROM session) AND id NOT IN (SELECT log FROM unused_log)
    AND id NOT IN (SELECT parent FROM log WHERE parent IS NOT NULL)"""


def _of_no_entry(view: LineView) -> _Check:
    """What a view says of entries that its log does not hold."""
    where = f"""n < (SELECT base_n FROM log WHERE id = {view.table}.log) OR n >= coalesce((
        SELECT segment.n + length(entries) / {RECORD_SIZE} FROM segment
        WHERE segment.log = {view.table}.log ORDER BY segment.n DESC LIMIT 1), 0)"""
    words = f"'what log ' || log || ' says of {view.words} of entries that it has not'"
    return _Check(f"SELECT DISTINCT {words} FROM {view.table} WHERE {where}", f"DELETE FROM {view.table} WHERE {where}")


_CHECKS = (
    _Check(f"SELECT 'a gap in log ' || log || ' at entry ' || end FROM ({_SEGMENTS}) WHERE next_n <> end"),
    _Check(
        f"SELECT 'a gap in the bytes of log ' || log || ' at entry ' || end FROM ({_SEGMENTS}) WHERE next_start <> stop"
    ),
    _Check(
        "SELECT 'log ' || log.id || ' does not begin at entry ' || base_n FROM log"
        " JOIN (SELECT log, min(n) AS first FROM segment GROUP BY log) ON log = log.id WHERE first <> base_n"
    ),
    _Check(
        f"""SELECT 'log ' || session.id || ' ends at entry ' || coalesce(end, base_n) || ', not ' || session.n
        FROM session JOIN log USING (id) LEFT JOIN (SELECT log, max(end) AS end FROM ({_SEGMENTS}) GROUP BY log)
        ON log = session.id WHERE coalesce(end, base_n) <> session.n"""
    ),
    _Check(
        f"SELECT 'log ' || id || ' belongs to no session' FROM log WHERE {_UNUSED}",
        f"INSERT INTO unused_log SELECT id FROM log WHERE {_UNUSED}",
    ),
    _Check(
        f"SELECT 'the by-cwd name of session ' || id FROM session WHERE {_KEY_IS_WRONG}",
        f"UPDATE session SET cwd_key = CASE WHEN cwd_seq > 0 THEN key_of(cwd) END WHERE {_KEY_IS_WRONG}",
    ),
    *map(_of_no_entry, LINE_VIEWS),
)
_INDEX_REPAIRS = (
    f"UPDATE owner SET list_size = {_LIST_SIZE}, list_mtime = list_mtime + 1 WHERE list_size <> {_LIST_SIZE}",
    f"UPDATE owner SET current = NULL, current_mtime = current_mtime + 1 WHERE {_CURRENT_IS_GONE}",
    f"DELETE FROM mapping WHERE kind = 'by-cwd' AND {_HOLDER} IS NULL",
    f"UPDATE mapping SET session = {_HOLDER}, mtime = mtime + 1 WHERE kind = 'by-cwd' AND session IS NOT {_HOLDER}",
    """INSERT INTO mapping (owner, kind, key, session, mtime)
    SELECT owner, 'by-cwd', cwd_key, id, cwd_mtime FROM session AS holder
    WHERE archive IS NULL AND owner IS NOT NULL AND cwd_key IS NOT NULL AND cwd_seq = (
        SELECT max(cwd_seq) FROM session
        WHERE owner = holder.owner AND archive IS NULL AND cwd_key = holder.cwd_key)
    ON CONFLICT DO NOTHING""",
    """DELETE FROM mapping WHERE kind <> 'by-cwd' AND NOT EXISTS (
        SELECT 1 FROM session WHERE id = mapping.session AND session.owner = mapping.owner AND archive IS NULL)""",
)
"""What ``backend.doctor.owners`` finds wrong, made right."""


def broken_invariants(connection: sqlite3.Connection) -> list[str]:
    """What is wrong, in words (``sqlite3.Error``)."""
    _prepare(connection)
    found = [reason for check in _CHECKS for [reason] in connection.execute(check.find)]
    return found + [
        f"what log {wrong.log} says of {wrong.view.words} from entry {wrong.start} on"
        for wrong in wrong_views(connection)
    ]


def repair(connection: sqlite3.Connection) -> None:
    """Makes what is derived anew where it is wrong, in one transaction (``sqlite3.Error``)."""
    _prepare(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("REINDEX")
        for statement in (*(check.repair for check in _CHECKS if check.repair), *_INDEX_REPAIRS):
            connection.execute(statement)
        for wrong in list(wrong_views(connection)):
            wrong.mend(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _prepare(connection: sqlite3.Connection) -> None:
    connection.create_function("key_of", 1, cwd_key, deterministic=True)
