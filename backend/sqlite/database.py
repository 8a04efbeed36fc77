"""The one connection to ctxfs.db that reads and writes for the store: statements, transactions, disk errors.

Belongs to the thread that uses the store; nothing here waits for the disk. A transaction that fails is rolled back,
what was remembered of it is forgotten (``forget``), and the error of SQLite becomes a ``StoreFull`` or
``StoreFailed``, which ``failure`` keeps until a later commit succeeds.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from backend.errors import StoreFailed, StoreFull

E = TypeVar("E", bound=StoreFull | StoreFailed)

BUSY_TIMEOUT_S = 10.0
ALONE = "vfs=unix-excl"
"""SQLite keeps other processes out for as long as a connection is open. Its own connections then share the index of the
-wal in memory, without a -shm file and without system calls to lock it: half of all that a small commit makes."""
SECONDARY = 0xFF
"""The low byte of an extended SQLite result code is the primary one."""


def connect(database: Path, how: str = ALONE) -> sqlite3.Connection:
    """A connection as everything here wants it: no implicit transactions, usable from any one thread at a time.

    ``how``: parameters of SQLite's URIs.
    """
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(database))}?{how}",
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        uri=True,
    )
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    # Deleted text is overwritten wherever that costs no extra page.
    connection.execute("PRAGMA secure_delete = FAST").fetchall()
    return connection


def disk_error(error: sqlite3.Error) -> StoreFull | StoreFailed:
    """What an error of SQLite means to a caller (design, Commit policy: ENOSPC and EIO reach it as themselves)."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & SECONDARY
    if code == sqlite3.SQLITE_FULL:
        return StoreFull("the disk of the store is full, nothing was stored: free some space")
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return StoreFailed(f"the store failed, nothing was stored: {error} ({name})")


class Database:
    """``committed`` counts commits that changed something; ``forget`` is called when one is rolled back."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.committed = 0
        self.forget: Callable[[], None] = lambda: None
        self.failure: str | None = None
        self.connection = connection
        self.run: Callable[..., sqlite3.Cursor] = connection.execute
        """A statement of a transaction, with its values in a tuple; errors are mapped where the transaction ends."""
        self._changes = 0
        self._gate: threading.Event | None = None

    def one(self, sql: str, *values: Any) -> Any:
        """The only row of a query, None if it has none. It must find at most one, or say LIMIT 1."""
        try:
            return self.connection.execute(sql, values).fetchone()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def all(self, sql: str, *values: Any) -> list[Any]:
        try:
            return self.connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def insert(self, sql: str, *values: Any) -> int:
        """Like ``run``; the new row's id."""
        row = self.run(sql, values).lastrowid
        assert row is not None
        return row

    @contextlib.contextmanager
    def closed_gate(self) -> Iterator[None]:
        """Lets no new transaction begin; for other threads, and only for some ms."""
        self._gate = threading.Event()
        try:
            yield
        finally:
            gate, self._gate = self._gate, None
            gate.set()

    def begin(self) -> None:
        if (gate := self._gate) is not None:
            gate.wait()
        try:
            # A deferred BEGIN that reads and then writes fails at once where another connection wrote in between.
            self.connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise self._failed(error) from error
        self._changes = self.connection.total_changes

    def alone(self, sql: str, values: tuple[Any, ...]) -> None:
        """A transaction of one statement, which changes something."""
        if (gate := self._gate) is not None:
            gate.wait()
        try:
            self.run(sql, values)
        except sqlite3.Error as error:
            self.rollback()
            raise self._failed(error) from error
        self.committed += 1
        self.failure = None

    def commit(self) -> None:
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            self.rollback()
            raise self._failed(error) from error
        if self.connection.total_changes != self._changes:
            self.committed += 1
            self.failure = None

    def rollback(self) -> None:
        """Undoes the transaction; SQLite itself may have done so already."""
        self.forget()
        if self.connection.in_transaction:
            # One that fails has ended the transaction all the same, and says nothing that its cause does not.
            with contextlib.suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")

    def rollback_for(self, error: BaseException) -> None:
        """Undoes the transaction that ``error`` ended; raises its own error where the disk was to blame."""
        self.rollback()
        if isinstance(error, sqlite3.Error):
            raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> StoreFull | StoreFailed:
        return self.remember(disk_error(error))

    def remember(self, failure: E) -> E:
        """Notes a failure of the disk for ``status``."""
        self.failure = str(failure)
        return failure
