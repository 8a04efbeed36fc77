"""When commits are on disk, and the write-ahead log's length (design, Commit policy; spec 1.3).

A commit with synchronous=NORMAL writes its frames to ctxfs.db-wal and waits for nothing. ``sync`` makes all of them
survive a power cut with one fdatasync of that file, through a descriptor of our own. That is enough:

- What was committed before the call is in the -wal file, or was written back to ctxfs.db by a checkpoint and the -wal
  began anew. SQLite lets the -wal begin anew only after a checkpoint wrote all of it back **and synced ctxfs.db**
  (its connection has synchronous=FULL, and NORMAL does the same); a checkpoint syncs the -wal before it writes
  anything back, and the header of a -wal that begins anew is synced before any frame that follows it. So at every
  moment each such commit is in one file as far as that is synced, or in what this fdatasync writes.
- The -wal is one file (inode) from opening to closing: SQLite truncates or rewrites it, and only the last connection
  removes it. Its directory entry was synced when the store was opened.

A failed fdatasync says that pages were lost that the kernel then takes for clean: to repeat it would succeed and prove
nothing (cf. fsyncgate). From then on ``sync`` succeeds only after a checkpoint wrote everything to ctxfs.db, synced.

A copy reads through a connection of its own, from one snapshot: writers go on, and the -wal cannot begin anew before it
ends. Where the store needs that, because its disk is full or failed or it is closed, the copy is given up.

A full disk must not jam the store: what is in the -wal needs as much room again in ctxfs.db before the -wal can be
used anew. ``require_room`` refuses what would leave less than that, so a deletion always finds the room it needs.

Threads: everything here may be called from any thread, at the same time as the store's own thread works. ``_syncs``
is taken before ``_side_lock``, which guards the second connection, and that before ``_copies``, which a copy holds; the
store's thread takes none while it commits.
Only where writers have outrun the checkpoints do they wait at a gate: for the last frames and two syncs, a few ms.
"""

import contextlib
import os
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from backend.errors import StoreFailed, StoreFull
from backend.sqlite.database import Database, connect, disk_error

CHECKPOINT_BYTES = 8 << 20
"""``maintain`` writes the -wal back when more is in it; it then begins anew in place, and so stays near that size."""
OUTRUN_BYTES = 16 << 20
"""With more in it, passes that wait for nobody were outrun by writers: one that makes them wait ends it."""
PASSES = 3
"""So many passes try to catch up with the writers first, each with less to do."""
RESERVE_BYTES = 1 << 20
"""Room that is left to removals, to merging what waits (`backend.sqlite.pending`), and to joining rows."""
INDEX_BYTES = 128 << 10
"""Room that is left to -shm, through which a -wal that a crash left is looked at when the store is opened: that is
mapped memory, and where its pages find none, the process dies of SIGBUS."""

COPIED_PAGES = 512
"""So many pages are copied between two looks at whether the copy is to go on."""

_ASIDE_BYTES = 16 << 10
"""What an append of little writes beside its payload: some pages."""
_ROOM_LIMIT = 16 << 20
"""The disk is asked again at the latest when so much was written, as others fill it too."""
_HEADER_SIZE = 32
_FRAME_HEADER_SIZE = 24
_SALTS = slice(16, 24)
_FRAME_SALTS_AT = 8


class Durability:
    """``path`` is the database file; of ``database`` the count of commits and the gate are used, from any thread."""

    def __init__(self, path: Path, database: Database) -> None:
        self._path = path
        self._wal = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._database = database
        self._synced = 0
        self._lost = False
        self._room = 0
        self._syncs = threading.Lock()
        self._side_lock = threading.Lock()
        self._copies = threading.RLock()
        self._copy_goes_on = True
        self._side = connect(path)
        self._side.execute("PRAGMA synchronous = FULL")
        [page_size] = self._side.execute("PRAGMA page_size").fetchone()
        self._frame_size = _FRAME_HEADER_SIZE + int(page_size)

    def sync(self) -> None:
        """Returns when everything committed before the call is on disk; ``StoreFailed`` where that cannot be said."""
        wanted = self._database.committed
        with self._syncs:
            if wanted <= self._synced and not self._lost:
                return
            reached = self._database.committed
            if self._lost:
                self._write_back()
            else:
                self._sync_wal()
            self._lost, self._synced = False, reached

    def maintain(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Does ``work`` on the second connection, then keeps the -wal short."""
        with self._side_lock:
            try:
                work(self._side)
                self._bound()
            except sqlite3.Error as error:
                raise disk_error(error) from error

    def require_room(self, payload: int) -> None:
        """Refuses (``StoreFull``) what would leave no room to write the -wal back; for the store's thread."""
        self._room -= payload + _ASIDE_BYTES
        if self._room > 0:
            return
        kept = payload + RESERVE_BYTES
        room = self._free() - os.fstat(self._wal).st_size - 2 * kept - INDEX_BYTES
        if room > 0:
            self._room = min(room // 4, _ROOM_LIMIT)
        elif self._free() < self._needed(kept) and not (self.reclaim() and self._free() >= self._needed(kept)):
            raise StoreFull("the disk of the store is full, nothing was stored: free some space")

    def reclaim(self) -> bool:
        """Gives the room of the -wal back where the disk has none left; whether that worked."""
        with self._side_lock:
            try:
                return self._checkpoint("TRUNCATE")
            except sqlite3.Error:
                # ctxfs.db itself may need room for it. The caller answers for the disk.
                return False

    def copy(self, target: Path, proceed: Callable[[int], None]) -> None:
        """Copies the database of this moment into the empty file ``target``, which is not synced.

        ``proceed`` is told of bytes copied; what it raises ends the copy. One copy after the other.
        """
        with (
            self._copies,
            contextlib.closing(connect(self._path)) as source,
            contextlib.closing(connect(target)) as copy,
        ):
            for setting in ("journal_mode = OFF", "synchronous = OFF"):
                copy.execute(f"PRAGMA {setting}").fetchall()
            # The snapshot, for all steps: without it each commit would make the copy begin anew.
            source.execute("BEGIN")
            source.execute("SELECT openings FROM store").fetchone()
            source.backup(copy, pages=COPIED_PAGES, progress=self._copied(proceed))

    def _copied(self, proceed: Callable[[int], None]) -> Callable[[int, int, int], None]:
        def progress(_status: int, remaining: int, total: int) -> None:
            if not self._copy_goes_on:
                raise StoreFull("the copy was given up: the store needs the room that its end would have given back")
            proceed(min(COPIED_PAGES, total - remaining) * (self._frame_size - _FRAME_HEADER_SIZE))

        return progress

    def _end_copy(self) -> None:
        self._copy_goes_on = False
        with self._copies:
            self._copy_goes_on = True

    def wal_bytes(self) -> int:
        """How much of the -wal is in use: frames of its present round begin with the salts of its header."""
        salts = os.pread(self._wal, _HEADER_SIZE, 0)[_SALTS]
        low, high = 0, max(os.fstat(self._wal).st_size - _HEADER_SIZE, 0) // self._frame_size
        while low < high:
            frame = (low + high) // 2
            if os.pread(self._wal, len(salts), _HEADER_SIZE + frame * self._frame_size + _FRAME_SALTS_AT) == salts:
                low = frame + 1
            else:
                high = frame
        return low * self._frame_size

    def close(self) -> None:
        """Syncs and lets go of the files; the last connection writes back what remains of the -wal."""
        try:
            self.sync()
        finally:
            with self._syncs, self._side_lock:
                self._end_copy()
                self._side.close()
                os.close(self._wal)

    def _sync_wal(self) -> None:
        try:
            os.fdatasync(self._wal)
        except OSError as error:
            self._lost = True
            failure = StoreFailed(f"the disk of the store failed: {error.strerror}")
            raise self._database.remember(failure) from error

    def _write_back(self) -> None:
        with self._side_lock:
            try:
                written = self._checkpoint("RESTART")
            except sqlite3.Error as error:
                raise disk_error(error) from error
        if not written:
            raise StoreFailed("the disk of the store failed, and the store is too busy to write everything anew")

    def _bound(self) -> None:
        if self.wal_bytes() < CHECKPOINT_BYTES:
            return
        self._checkpoint("PASSIVE")
        for _ in range(PASSES - 1):
            if self.wal_bytes() <= OUTRUN_BYTES:
                return
            self._checkpoint("PASSIVE")
        if self._copies.acquire(blocking=False):
            try:
                with self._database.closed_gate():
                    self._checkpoint("RESTART")
            finally:
                self._copies.release()

    def _needed(self, size: int) -> int:
        """Bytes of the disk that it would take to store ``size`` bytes and to write the -wal back afterwards."""
        pages, unused = (int(self._database.one(f"PRAGMA {name}")[0]) for name in ("page_count", "freelist_count"))
        page_size = self._frame_size - _FRAME_HEADER_SIZE
        behind = max(pages * page_size - self._path.stat().st_size, 0)
        rest = os.fstat(self._wal).st_size - self.wal_bytes()
        return max(size - rest, 0) + max(behind + size - unused * page_size, 0) + INDEX_BYTES

    def _free(self) -> int:
        """Bytes of the disk that are left to ordinary users; a file system that does not say has enough."""
        disk = os.fstatvfs(self._wal)
        return disk.f_bavail * disk.f_frsize if disk.f_blocks else sys.maxsize

    def _checkpoint(self, mode: str) -> bool:
        """Whether all of the -wal is in ctxfs.db now."""
        if mode != "PASSIVE":
            self._end_copy()
        busy, frames, written = self._side.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return not busy and frames == written
