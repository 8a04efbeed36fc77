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

Threads: everything here may be called from any thread, at the same time as the store's own thread works. ``_syncs``
is taken before ``_side_lock``, which guards the second connection; the store's thread takes neither while it commits.
Only a checkpoint that writers have outrun makes them wait: for its last frames and two syncs, a few ms.
"""

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from backend.errors import StoreFailed
from backend.sqlite.database import connect, disk_error

CHECKPOINT_BYTES = 8 << 20
"""``maintain`` writes the -wal back when more is in it; it then begins anew in place, and so stays near that size."""
OUTRUN_BYTES = 16 << 20
"""With more in it, passes that wait for nobody were outrun by writers: one that makes them wait ends it."""

_HEADER_SIZE = 32
_FRAME_HEADER_SIZE = 24
_SALTS = slice(16, 24)
_FRAME_SALTS_AT = 8


class Durability:
    """``committed`` tells the number of commits of the store's thread; it is called from others."""

    def __init__(self, database: Path, committed: Callable[[], int]) -> None:
        self._wal = os.open(f"{database}-wal", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._committed = committed
        self._synced = 0
        self._lost = False
        self._syncs = threading.Lock()
        self._side_lock = threading.Lock()
        self._side = connect(str(database))
        self._side.execute("PRAGMA synchronous = FULL")
        [page_size] = self._side.execute("PRAGMA page_size").fetchone()
        self._frame_size = _FRAME_HEADER_SIZE + int(page_size)

    def sync(self) -> None:
        """Returns when everything committed before the call is on disk; ``StoreFailed`` where that cannot be said."""
        wanted = self._committed()
        with self._syncs:
            if wanted <= self._synced and not self._lost:
                return
            reached = self._committed()
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

    def reclaim(self) -> None:
        """Makes the room in the -wal usable again, where the disk has none left; as far as that goes."""
        with self._side_lock:
            try:
                self._checkpoint("RESTART")
            except sqlite3.Error:
                # ctxfs.db itself may need room for it. The caller tries again, and that answers for the disk.
                return

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
                self._side.close()
                os.close(self._wal)

    def _sync_wal(self) -> None:
        try:
            os.fdatasync(self._wal)
        except OSError as error:
            self._lost = True
            raise StoreFailed(f"the disk of the store failed: {error.strerror}") from error

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
        if self.wal_bytes() > OUTRUN_BYTES:
            self._checkpoint("RESTART")

    def _checkpoint(self, mode: str) -> bool:
        """Whether all of the -wal is in ctxfs.db now."""
        busy, frames, written = self._side.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return not busy and frames == written
