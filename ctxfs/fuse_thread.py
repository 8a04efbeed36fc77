"""One mount, served in a thread of its own on the poll loop (``ctxfs.loop``).

The store belongs to this thread from ``start`` to the end of ``stop``. Nothing else of the daemon touches the mount:
a call on a path of our own mount that holds the GIL would wait for ourselves.
"""

import os
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pyfuse3

from backend.errors import StoreFailed
from backend.store import Store, StoreStatus
from ctxfs.activity import Activity
from ctxfs.boundary import guard_operations
from ctxfs.bridge import Bridge
from ctxfs.budget import Budget
from ctxfs.commits import Commits
from ctxfs.contexts import Contexts
from ctxfs.core import Core
from ctxfs.definition_changes import DefinitionChanges
from ctxfs.disk_health import DiskHealth
from ctxfs.files.context import root_key
from ctxfs.files.passthrough import DiskOperations
from ctxfs.files.passthrough_blocking import BlockingCalls
from ctxfs.files.temporaries import Temporaries
from ctxfs.inodes import Kind, Node, inode_of
from ctxfs.kernel_cache import KernelCache
from ctxfs.loop import Loop
from ctxfs.operations import Operations
from ctxfs.privacy import Access
from ctxfs.statistics import Statistics
from ctxfs.subjects import Subjects
from ctxfs.users import Users

KEPT_TASKS = 12
"""So many of pyfuse3's tasks wait for requests: one that ends, and begins again, takes a buffer of 1 MiB each time."""
MOST_TASKS = 1 << 30
"""No bound: a writer keeps its task until pages are dropped, which waits for reads that need a task, too."""


class FuseThreadDied(RuntimeError):
    """The loop ended with an exception: nobody serves the mount any more."""


class FuseThread:
    """``owner_uid`` None: a mount for every user, made by root; else that user's own (spec 1.8).

    ``disk_dir``: what its ordinary directories are below.
    """

    def __init__(
        self,
        store: Store,
        store_dir: Path,
        disk_dir: Path,
        mountpoint: str,
        *,
        options: frozenset[str],
        owner_uid: int | None,
    ) -> None:
        self._mountpoint = mountpoint
        self._options = options
        self._loop = Loop()
        self._disk_calls = BlockingCalls(self._loop)
        self._statistics = Statistics()
        self._core = self._make_core(store, store_dir, disk_dir, owner_uid)
        self.bridge = Bridge(self._loop, self._core)
        self._operations = Operations(self._core)
        guard_operations(self._operations, self._statistics, self._core.health)
        self._thread = threading.Thread(target=self._serve, name="ctxfs-fuse", daemon=True)
        self._failure: BaseException | None = None

    def _make_core(self, store: Store, store_dir: Path, disk_dir: Path, owner_uid: int | None) -> Core:
        users = Users(self._loop)
        root = Access(os.geteuid(), os.getegid(), shared=True)
        subjects = Subjects(store, users, root, time.time_ns(), self._statistics.sessions)
        kernel = KernelCache(subjects, self._loop, self._statistics)
        health = DiskHealth(lambda: kernel.attributes_changed(inode_of(Node(Kind.STATUS, 1))))
        commits = Commits(self._loop, store, health, self._statistics, kernel)
        budget = Budget()
        return Core(
            store=store,
            store_dir=store_dir,
            subjects=subjects,
            users=users,
            commits=commits,
            contexts=Contexts(subjects, commits, kernel),
            kernel=kernel,
            definitions=DefinitionChanges(self._loop),
            activity=Activity(kernel.definition_turned),
            disk=DiskOperations(
                disk_dir,
                as_root=owner_uid is None,
                invalidate=kernel.attributes_changed,
                offload=self._disk_calls,
            ),
            temporaries=Temporaries(budget),
            budget=budget,
            statistics=self._statistics,
            health=health,
            mounter=os.geteuid(),
            alone=owner_uid is not None,
        )

    def _finish_removals(self) -> None:
        """What a daemon that died had put aside: deleted with its session, or back where it was."""
        roots = self._core.disk.closed_roots
        for number in roots.aside():
            session = self._core.store.session_by_id(number)
            if session is not None:
                roots.put_back(root_key(self._core, session), number)
            roots.delete_now(number)

    def start(self) -> None:
        """Mounts; requests are answered when this returns (``StoreFailed`` where FUSE refuses)."""
        self._finish_removals()
        pyfuse3.trio = self._loop  # type: ignore[attr-defined]
        try:
            pyfuse3.init(self._operations, self._mountpoint, set(self._options))
        except RuntimeError as error:
            raise StoreFailed(f"cannot mount {self._mountpoint}: {error}") from None
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._loop.run(lambda: pyfuse3.main(min_tasks=KEPT_TASKS, max_tasks=MOST_TASKS))
        except BaseException as error:
            self._failure = error
        finally:
            self.bridge.end()

    def stop(self) -> None:
        """Ends the loop and the threads beside it, when nothing is mounted any more or nothing is to be answered."""
        if self._thread.is_alive():
            self._core.kernel.finish(pyfuse3.terminate)
            self._thread.join()
        self._disk_calls.close()
        self._core.commits.close()
        self._core.kernel.close()
        self._core.users.close()
        pyfuse3.close(unmount=False)

    def wait_finished(self) -> None:
        """Blocks until the loop has ended: unmounted from outside, or aborted (``FuseThreadDied``: by a bug)."""
        self._thread.join()
        if self._failure is not None:
            raise FuseThreadDied(f"the FUSE thread died of {self._failure!r}") from self._failure

    def statistics(self) -> Statistics:
        """The live counters."""
        return self._statistics

    def store_status(self) -> Future[StoreStatus]:
        """The store's figures, taken by this thread, whose store it is; any thread may ask and wait for them."""
        answer: Future[StoreStatus] = Future()

        def take() -> None:
            try:
                answer.set_result(self._core.store.status())
            except Exception as error:
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(take)
        return answer
