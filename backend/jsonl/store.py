"""The jsonl store: everything that ``backend.store.Store`` asks for, on plain files in CortexFS's layout (spec 2.9).

One thread at a time uses it, the one that opened it; only ``sync`` may run in another at the same time. Nothing but
``sync`` and ``close`` waits for the disk. While it is open nobody else may write below its directory: what changes
behind its back is noticed at the next append and refused (spec 1.5, last point).

=====================================  =============================================================================
below the directory                    is
=====================================  =============================================================================
home/, shared/, agent/, model/         the tree as CortexFS has it
<session>/messages.jsonl, events.jsonl the log's lines, byte for byte
<session>/.store/order.jsonl           the session's header and the order, times and requests of its entries
<session>/.store/journal               the request under way, or the facts after the last one
<session>/state, cwd, latest.md …      views of the log, made again where they are wrong
.ctxfs/catalogue.jsonl                 row ids, and what no other file says
.ctxfs/session/                        sessions made through the API, which have no place in the tree
=====================================  =============================================================================
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from backend.jsonl.catalogue import Catalogue, SessionRecord
from backend.jsonl.clock import Clock
from backend.jsonl.copying import copy_tree
from backend.jsonl.definitions import Definitions
from backend.jsonl.disk import reported
from backend.jsonl.durability import Durability
from backend.jsonl.handles import HandleCache
from backend.jsonl.log import Workshop
from backend.jsonl.opened import Lock, lock_directory, mark_closed, mark_open, opening
from backend.jsonl.paths import HIDDEN
from backend.jsonl.sessions import Sessions
from backend.store import StoreStatus


class JsonlStore(Sessions, Definitions):
    """A store in a directory. ``await JsonlStore.open(directory)``."""

    @classmethod
    async def open(cls, directory: Path | str, *, clock: Callable[[], int] = time.time_ns) -> "JsonlStore":
        """Opens the store in ``directory``, or makes one. ``clock``: ns since the epoch. ``OpenError``."""
        return cls.open_now(directory, clock=clock)

    @classmethod
    def open_now(cls, directory: Path | str, *, clock: Callable[[], int] = time.time_ns) -> "JsonlStore":
        """As ``open``."""
        lock = lock_directory(Path(directory))
        try:
            with opening(lock.directory):
                durability = Durability(lock.descriptor, owes_all=lock.death != "none")
                shared = Workshop(HandleCache(), durability, Clock(clock), lock.death)
                catalogue = Catalogue(f"{lock.directory}/{HIDDEN}/catalogue.jsonl", durability)
                store = cls(lock, catalogue, shared)
                if lock.death == "machine":
                    store.recover()
                mark_open(lock)
                return store
        except BaseException:
            os.close(lock.descriptor)
            raise

    def __init__(self, lock: Lock, catalogue: Catalogue, shared: Workshop) -> None:
        super().__init__(lock.directory, catalogue, shared)
        self._lock: Lock | None = lock

    def recover(self) -> None:
        """Looks at every session after a power cut: later nobody can tell any more what was unsynced then."""
        self._discover_all()
        for record in list(self._catalogue.all(SessionRecord)):
            self._log(record.id)

    def sync(self) -> None:
        self._shared.durability.sync()

    def maintain(self) -> None:
        """There is nothing that could wait."""

    def copy(self, target: Path, in_turn: Callable[[Callable[[], None]], None], proceed: Callable[[int], None]) -> None:
        copy_tree(Path(self._directory), target, in_turn, proceed)

    def integrity(self) -> Sequence[str]:
        """Looks at every session; one that cannot be proven is no fault of the store (spec 1.5)."""
        self.recover()
        return []

    def drift(self) -> Sequence[str]:
        """None: opening a session compares it with its log."""
        return []

    def repair(self) -> None:
        """Opening makes what is derived anew."""

    def status(self) -> StoreStatus:
        """Looks at the whole tree the first time; ``bytes`` are those of the logs that were looked at."""
        self._discover_all()
        live = len(self._ids) - sum(len(shelf.sessions) for shelf in self._shelves.values())
        return StoreStatus("jsonl", live, len(self._spaces), self._log_bytes(), self._failure)

    def close(self) -> None:
        """Writes the views that waited for it, syncs, and lets go of the disk; twice is once."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            for held in self._owners.values():
                with suppress(OSError):
                    self._write_list(held)
            self.sync()
            with reported():
                for log in self._logs.values():
                    log.settle()
            self.sync()
            with reported():
                mark_closed(lock)
        finally:
            self._shared.cache.close()
            self._catalogue.close()
            os.close(lock.descriptor)
