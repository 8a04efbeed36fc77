"""The words of one owner's sessions, in an SQLite file of its own (``schema.sql``).

A file that cannot be read, or is of another format, is replaced by an empty one: ``update`` fills it. What a session
leaves behind when it is archived are words that lead nowhere; once one is deleted the whole file is made anew, so that
nothing of it stays. One thread at a time; every method may wait for the disk.
"""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from backend.errors import StoreFailed, StoreFull
from backend.search.query import segmented

FORMAT = 1
RESERVE = 16 << 20
_NO_END = 1 << 62
_SUFFIXES = ("", "-journal")
_FULL = (errno.ENOSPC, errno.EDQUOT)
# A file that says it holds what it does not is as broken as one that is no database.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT)


class IndexDamaged(StoreFailed):
    """The index's file is not what was written; ``clear`` begins it anew."""


class Mark(NamedTuple):
    """How far an index is: see ``schema.sql``."""

    owner_mtime: int = 0
    list_mtime: int = 0
    seq: int = 0
    top: int = 0


class Indexed(NamedTuple):
    """Entries ``start`` to ``n`` of a session are indexed."""

    start: int
    n: int


class Place(NamedTuple):
    """Where in the index an entry is, and when it was."""

    id: int
    time: int


class Text(NamedTuple):
    """An entry's text; ``time`` in ms."""

    n: int
    time: int
    text: str


class Hit(NamedTuple):
    """An entry that matches. In order of time, session and number, the newest first."""

    time: int
    session: int
    n: int


class SearchIndex:
    """The index in the file ``path``, made if it is not there (``StoreFailed``, ``StoreFull``)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _reported():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.parent.chmod(0o700)
            self._connection = self._opened()

    def _opened(self) -> sqlite3.Connection:
        try:
            connection = self._connected()
        except (sqlite3.DatabaseError, _OtherFormat):
            self._remove()
            connection = self._connected()
        return connection

    def _connected(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = TRUNCATE")
            connection.execute("PRAGMA cache_size = -8192")
            with _transaction(connection):
                _make_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        self._connection.close()

    def _remove(self) -> None:
        for suffix in _SUFFIXES:
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)

    def clear(self) -> None:
        """Drops everything, so that nothing that was indexed is on the disk any more."""
        with _reported():
            self._connection.close()
            self._remove()
            self._connection = self._opened()

    @property
    def mark(self) -> Mark:
        with _reported():
            row = self._connection.execute("SELECT owner_mtime, list_mtime, seq, top FROM state").fetchone()
        return Mark(*row)

    def set_mark(self, mark: Mark) -> None:
        with _reported():
            self._connection.execute("UPDATE state SET owner_mtime = ?, list_mtime = ?, seq = ?, top = ?", mark)

    def sessions(self) -> dict[int, Indexed]:
        """All sessions that are indexed, by their ids."""
        with _reported():
            rows = self._connection.execute("SELECT id, start, n FROM session")
            return {session: Indexed(start, n) for session, start, n in rows}

    def count(self) -> int:
        """How many sessions are indexed."""
        with _reported():
            [[count]] = self._connection.execute("SELECT count(*) FROM session").fetchall()
        return int(count)

    def indexed(self, session: int) -> Indexed | None:
        with _reported():
            row = self._connection.execute("SELECT start, n FROM session WHERE id = ?", (session,)).fetchone()
        return None if row is None else Indexed(*row)

    def add(self, texts: Mapping[int, Sequence[Text]], indexed: Mapping[int, Indexed]) -> None:
        """The texts of sessions, and what is then indexed of each, in one transaction.

        ``StoreFull`` while little is free on the disk: that is for the logs themselves.
        """
        with _reported():
            disk = os.statvfs(self._path.parent)
        if disk.f_bavail * disk.f_frsize < RESERVE:
            raise StoreFull("the disk is almost full: nothing is searched until there is room for its index")
        with _reported(), _transaction(self._connection) as connection:
            [[number]] = connection.execute("SELECT coalesce(max(id), 0) FROM entry").fetchall()
            entries = [(session, *text) for session, found in texts.items() for text in found]
            connection.executemany(
                "INSERT INTO entry (id, session, n, time) VALUES (?, ?, ?, ?)",
                ((id, session, n, time) for id, (session, n, time, _) in enumerate(entries, number + 1)),
            )
            connection.executemany(
                "INSERT INTO text (rowid, content) VALUES (?, ?)",
                ((id, segmented(text)) for id, (*_, text) in enumerate(entries, number + 1)),
            )
            connection.executemany(
                "REPLACE INTO session (id, start, n) VALUES (?, ?, ?)",
                ((session, *bounds) for session, bounds in indexed.items()),
            )

    def forget(self, sessions: Iterable[int]) -> None:
        """They are not found any more."""
        numbers = [(session,) for session in sessions]
        with _reported(), _transaction(self._connection) as connection:
            connection.executemany("DELETE FROM entry WHERE session = ?", numbers)
            connection.executemany("DELETE FROM session WHERE id = ?", numbers)

    def entries(self, session: int, start: int, stop: int | None) -> dict[int, Place]:
        """Those of a session that have text, from ``start`` on and below ``stop`` (None: all), by number."""
        sql = "SELECT n, id, time FROM entry WHERE session = ? AND n >= ? AND n < ?"
        with _reported():
            rows = self._connection.execute(sql, (session, start, _NO_END if stop is None else stop))
            return {n: Place(id, time) for n, id, time in rows}

    def matching(self, expression: str, first: int, last: int) -> set[int]:
        """Which of the entries with these ids match, the last included."""
        sql = "SELECT rowid FROM text WHERE text MATCH ? AND rowid BETWEEN ? AND ?"
        with _reported():
            return {id for (id,) in self._connection.execute(sql, (expression, first, last))}

    def find(self, expression: str, limit: int) -> list[Hit]:
        """The newest entries that match (``backend.search.query``)."""
        sql = """SELECT entry.time, entry.session, entry.n FROM text JOIN entry ON entry.id = text.rowid
                 WHERE text MATCH ? ORDER BY entry.time DESC, entry.session DESC, entry.n DESC LIMIT ?"""
        with _reported():
            return [Hit(*row) for row in self._connection.execute(sql, (expression, limit))]


class _OtherFormat(Exception):
    """The file is of another version of this program."""


def _make_tables(connection: sqlite3.Connection) -> None:
    if connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None:
        for statement in resources.files("backend.search").joinpath("schema.sql").read_text().split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT INTO state VALUES (?, 0, 0, 0, 0)", (FORMAT,))
    if connection.execute("SELECT format FROM state").fetchone() != (FORMAT,):
        raise _OtherFormat


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


_KINDS: dict[int, type[StoreFailed | StoreFull]] = {
    sqlite3.SQLITE_FULL: StoreFull,
    **dict.fromkeys(_DAMAGED, IndexDamaged),
}


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    """Failures of the disk as the store's errors."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        raise _KINDS.get(code & 0xFF, StoreFailed)(f"the search index failed: {error}") from error
    except OSError as error:
        kind = StoreFull if error.errno in _FULL else StoreFailed
        raise kind(f"the search index failed: {error.strerror}") from error
