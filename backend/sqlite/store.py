"""The sqlite store: appends, durability, opening and closing; the rest is in the classes it derives from.

Implements ``backend.store.Store`` (specs 1.2–1.4, 2). One thread uses a store; ``sync`` and ``maintain`` may be called
from any other at the same time. The store's directory is this process's alone while it is open.
"""

import os
import sqlite3
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import msgspec

from backend.entries import SessionHeader
from backend.errors import CtxError, Missing, StoreCorrupt, StoreFailed, StoreFull
from backend.log_contract import LogContract, entry_times, judge_append, listed_key
from backend.mirror import Mirror
from backend.rows import Append, Appended, Line, Session
from backend.sqlite import pending, rows
from backend.sqlite.core import atomic, growing, transaction
from backend.sqlite.database import Database, disk_error
from backend.sqlite.doctor import broken_invariants, repair
from backend.sqlite.durability import Durability
from backend.sqlite.logs import sweep
from backend.sqlite.opening import DATABASE, NOT_COPIED, in_one_line, open_directory
from backend.sqlite.pending import Commit
from backend.sqlite.segments import packed_size
from backend.sqlite.sessions import Sessions
from backend.sqlite.spaces import Definitions
from backend.store import StoreStatus

Results = Sequence[Appended | CtxError]
Taken = tuple[Session, Append, Sequence[int]]
"""A session as it is by lines that were let wait, their append, and their times."""
Moved = Callable[[Session, Appended, Append, int], Appended]
"""Adds to an append what it changed beside its session: the session before, the time (ns)."""


class SqliteStore(Sessions, Definitions, LogContract):
    """A store in one directory. ``clock``: ns since the epoch."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int, clock: Callable[[], int]) -> None:
        database = Database(connection)
        super().__init__(database, Durability(path / DATABASE, database), clock)
        self._path = path
        self._lock = lock

    @classmethod
    async def open(cls, path: str | os.PathLike[str], *, clock: Callable[[], int] = time.time_ns) -> Self:
        """The store in the directory ``path``, a new one where there is none (``OpenError`` and its kinds)."""
        return cls.open_now(path, clock=clock)

    @classmethod
    def open_now(cls, path: str | os.PathLike[str], *, clock: Callable[[], int] = time.time_ns) -> Self:
        """``open`` for callers without an event loop."""
        directory = Path(path)
        connection, lock = open_directory(directory)
        store = cls(directory, connection, lock, clock)
        try:
            store._recall()
        except BaseException:
            store.close()
            raise
        return store

    def append(self, batch: Sequence[Append]) -> Sequence[Appended | CtxError]:
        try:
            return self._append_together(batch)
        except (StoreFull, StoreFailed) as failure:
            # What fails for the batch need not fail for each: a small append fits where a big neighbour does not.
            return [failure] if len(batch) == 1 else [self._append_alone(append) for append in batch]

    def sync(self) -> None:
        self._durability.sync()

    def maintain(self) -> None:
        """Removes what deleted sessions left, and keeps the -wal short (from a thread of its own, every second)."""
        self._durability.maintain(_sweep_all)

    def copy(self, target: Path, in_turn: Callable[[Callable[[], None]], None], proceed: Callable[[int], None]) -> None:
        descriptor = os.open(target / DATABASE, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, 0o600)
        os.close(descriptor)
        try:
            self._durability.copy(target / DATABASE, proceed)
        except sqlite3.Error as error:
            failure = disk_error(error)
            raise type(failure)(f"cannot write {target / DATABASE}: {error}") from error
        # After the database: what its lines name (spec 4.2, blobs) was there before them.
        Mirror(self._path, target, NOT_COPIED.__contains__, proceed).copy()

    def integrity(self) -> Sequence[str]:
        try:
            checked = self._database.all("PRAGMA integrity_check(100)")
            foreign = self._database.all("PRAGMA foreign_key_check")
        except StoreFailed as error:
            return [str(error)]
        found = [in_one_line(fault) for [fault] in checked if fault != "ok"]
        return found + [f"row {row} of {table} refers to no row of {other}" for table, row, other, _ in foreign]

    def drift(self) -> Sequence[str]:
        try:
            self._settle()
            return broken_invariants(self._database.connection)
        except (StoreFailed, sqlite3.Error) as error:
            return [str(error)]

    def repair(self) -> None:
        try:
            self._settle()
            repair(self._database.connection)
        except sqlite3.Error as error:
            raise disk_error(error) from error
        finally:
            self._forget()

    def status(self) -> StoreStatus:
        [live] = self._database.one("SELECT count(*) FROM session WHERE archive IS NULL")
        [spaces] = self._database.one("SELECT count(*) FROM space")
        files = (self._path / f"{DATABASE}{side}" for side in ("", "-wal"))
        return StoreStatus("sqlite", live, spaces, sum(file.stat().st_size for file in files), self._database.failure)

    def close(self) -> None:
        try:
            self._durability.close()
        finally:
            self._database.connection.close()
            os.close(self._lock)

    def _recall(self) -> None:
        """Reads the lines that wait."""
        try:
            self._waiting  # noqa: B018
        except (StoreFailed, Missing, LookupError, msgspec.MsgspecError, struct.error) as error:
            raise StoreCorrupt(f"{self._path / DATABASE} is damaged ({error}): restore a backup") from error

    def _append_together(self, batch: Sequence[Append]) -> Sequence[Appended | CtxError]:
        size = sum([packed_size(append.lines) for append in batch])
        self._require_room(size)
        if any(map(self._moves, batch)) or size > pending.DIRECT or self._waiting.size + size > pending.LIMIT:
            return self._commit_merged(batch)
        try:
            return self._commit_waiting(batch, size)
        except StoreFull:
            self._durability.reclaim()
        return self._commit_waiting(batch, size)

    def _commit_waiting(self, batch: Sequence[Append], size: int) -> Sequence[Appended | CtxError]:
        now = self._clock()
        try:
            results, taken = self._append_all(batch, now, self._let_begin)
        except BaseException as error:
            self._database.rollback_for(error)
            raise
        if taken:
            self._waiting.size += size
            commit = Commit(now, [pending.stored(*append) for append in taken])
            self._database.alone("INSERT INTO pending (data) VALUES (?)", (pending.encode(commit),))
        return results

    @transaction
    def _commit_merged(self, batch: Sequence[Append]) -> Sequence[Appended | CtxError]:
        if self._waiting.moves:
            # What moves now is judged by the tables.
            self._merge()
        results, _ = self._append_all(batch, self._clock(), self._moved)
        self._merge()
        return [self._note_run(append, result) for append, result in zip(batch, results, strict=True)]

    def _append_alone(self, append: Append) -> Appended | CtxError:
        try:
            [result] = self._append_together([append])
        except (StoreFull, StoreFailed) as failure:
            return failure
        return result

    def _append_all(self, batch: Sequence[Append], now: int, moved: Moved) -> tuple[Results, list[Taken]]:
        """Lets the lines wait; the caller stores what was taken, which is beside the results, or merges."""
        taken: list[Taken] = []
        relisted: set[int] = set()
        results: list[Appended | CtxError] = []
        for append in batch:
            try:
                before = judge_append(self.session_by_id(append.session), append)
            except CtxError as refusal:
                results.append(refusal)
                continue
            if not append.lines:
                results.append(Appended(before))
                continue
            times = entry_times(append, now // 1_000_000)
            appended = self._take_in(before, append.lines, times, now, self._next_seq(), relisted)
            taken.append((appended.session, append, times))
            results.append(moved(before, appended, append, now))
        self._relist(relisted, now)
        return results, taken

    def _let_begin(self, before: Session, appended: Appended, append: Append, now: int) -> Appended:
        return self._let_move(before, appended, append.begins, now)

    def _moves(self, append: Append) -> bool:
        """Whether an append changes more than its session, its owner, and to whom a key that is there leads."""
        if append.begins is None and all(line.cwd is None for line in append.lines):
            return False
        session = self.session_by_id(append.session)
        if session is None or listed_key(session) is None:
            return True
        return session.owner is None or any(line.cwd not in (None, session.cwd) for line in append.lines)

    def _moved(self, before: Session, appended: Appended, _append: Append, _now: int) -> Appended:
        """Adds what a cwd that was recorded changed."""
        after = appended.session
        if after.cwd_seq == before.cwd_seq:
            return appended
        changes = self._move_cwd(before, after)
        new, changed, gone = (
            tuple(key for key, change in changes.items() if change == kind) for kind in ("new", "changed", "gone")
        )
        return msgspec.structs.replace(appended, keys_new=new, keys_changed=changed, keys_gone=gone)

    # the log contract's primitives

    def _headers(self, parent: str | None, limit: int | None) -> Sequence[SessionHeader]:
        order = "ORDER BY created_at DESC, session_id LIMIT ?"
        count = -1 if limit is None else limit
        if parent is None:
            found = self._database.all(f"{rows.HEADER} {order}", count)
        else:
            found = self._database.all(f"{rows.HEADER} WHERE parent = ? {order}", parent, count)
        return [rows.header(row) for row in found]

    def _create(self, header: SessionHeader, lines: Sequence[Line], times: Sequence[int]) -> None:
        self._require_room(packed_size(lines))
        self._create_with(header, lines, times)

    @atomic
    def _create_with(self, header: SessionHeader, lines: Sequence[Line], times: Sequence[int]) -> None:
        session = self._insert(self._first(header, self._logs.add()), header)
        [result], _ = self._append_all([Append(session.id, lines, time=times)], self._clock(), self._moved)
        if isinstance(result, CtxError):
            raise result
        self._merge()

    @growing
    def _branch(self, header: SessionHeader, parent: Session, at: int) -> None:
        self._insert_branch(header, parent, at)


def _sweep_all(connection: sqlite3.Connection) -> None:
    more = True
    while more:
        connection.execute("BEGIN IMMEDIATE")
        try:
            more = sweep(connection)
            connection.execute("COMMIT")
        except BaseException:
            # SQLite itself may have ended it already; left open, it would keep every writer out.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
