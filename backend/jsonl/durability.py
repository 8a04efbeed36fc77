"""What has been written since the last sync, and the sync: the one place that waits for the disk (spec 1.3).

Threads: the store's thread adds, renames and removes; ``sync`` runs in any thread, at the same time. ``_lock`` guards
the set and is never held while waiting for the disk; ``_turn`` lets one sync run after another, so that a sync that
returns has the work of an earlier one behind it.
"""

import os
import threading
from collections.abc import Iterable

from backend.errors import StoreFailed
from backend.jsonl.disk import failure, fsync
from backend.jsonl.handles import JOURNAL
from backend.system_calls import sync_file_system

_MANY = 64


class Durability:
    """The paths (files, and directories whose entries changed) that are not on disk yet."""

    def __init__(self, root: int, owes_all: bool) -> None:
        """``root``: an open file of the store. It stays open: the kernel reports failures since then on it.

        ``owes_all``: a process died with the store open, and may have left anything unsynced.
        """
        self._root = root
        self._owes_all = owes_all
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._waiting: set[str] = set()
        self._started = 0
        self._completed = 0
        self._lost: str | None = None

    def add(self, paths: Iterable[str]) -> None:
        with self._lock:
            self._waiting.update(paths)

    @property
    def epoch(self) -> int:
        """Syncs started so far: what was added before is on disk once ``covers`` says so."""
        return self._started

    def covers(self, epoch: int) -> bool:
        """Whether a sync that started after ``epoch`` was read has completed."""
        return self._completed > epoch

    def sync(self) -> None:
        """Returns when all that was added before the call is on disk.

        ``StoreFull``: try again when there is space. ``StoreFailed`` stays until the store is reopened: the kernel
        drops the pages it could not write, so a second attempt would succeed without them.
        """
        with self._turn:
            if self._lost:
                raise StoreFailed(self._lost)
            with self._lock:
                self._started += 1
                epoch = self._started
            # A path that is gone was moved (its new name is waiting by now) or deleted.
            while self._write_out():
                pass
            self._completed = epoch

    def _write_out(self) -> bool:
        """Writes what is waiting; whether a path was gone."""
        with self._lock:
            paths, self._waiting = self._waiting, set()
        gone = False
        try:
            if self._owes_all or len(paths) > _MANY:
                paths = self._write_out_device(paths)
                self._owes_all = False
            for path in sorted(paths, key=_rank):
                gone |= not _written_out(path)
        except OSError as error:
            self.add(paths)
            problem = failure(error)
            if isinstance(problem, StoreFailed):
                self._lost = str(problem)
            raise problem from error
        return gone

    def _write_out_device(self, paths: set[str]) -> set[str]:
        """Writes out the store's whole file system; the paths that are on another one."""
        device = os.fstat(self._root).st_dev
        others = {path for path in paths if _device(path) not in (device, None)}
        sync_file_system(self._root)
        return others


def _rank(path: str) -> int:
    """Journals first: a power cut between two files is then made good by what they say (``backend.jsonl.opening``)."""
    return 0 if path.endswith(JOURNAL) else 1


def _device(path: str) -> int | None:
    try:
        return os.lstat(path).st_dev
    except (FileNotFoundError, NotADirectoryError):
        return None


def _written_out(path: str) -> bool:
    """Whether the path was there to be written out."""
    try:
        fsync(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
