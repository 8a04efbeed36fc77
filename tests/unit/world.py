"""The tree over a memory store, without a mount: handlers are called as the kernel would."""

import os
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest import mock

from pyfuse3 import FUSEError

from backend.errors import CtxError
from backend.memory import MemoryStore
from backend.store import Store
from ctxfs.activity import Activity
from ctxfs.boundary import errno_of
from ctxfs.budget import Budget
from ctxfs.commits import Commits
from ctxfs.contexts import Contexts
from ctxfs.core import Core
from ctxfs.definition_changes import DefinitionChanges
from ctxfs.disk_health import DiskHealth
from ctxfs.file_operations import TreeOperations
from ctxfs.files.passthrough import DiskOperations
from ctxfs.files.temporaries import Temporaries
from ctxfs.inodes import node_of
from ctxfs.kernel_cache import KernelCache
from ctxfs.loop import Loop
from ctxfs.privacy import Access
from ctxfs.statistics import Statistics
from ctxfs.subjects import Subjects
from ctxfs.tree import Tree
from ctxfs.users import Users

T = TypeVar("T")


class Caller(NamedTuple):
    """What a handler needs of a request's context."""

    uid: int
    gid: int
    pid: int = 0
    umask: int = 0


ALICE: Any = Caller(1001, 1001)


class World:
    """``tree`` reads, ``operations`` are the handlers; what would be sent to a kernel is noted.

    ``told`` are inodes whose attributes it must ask for again, ``told_names`` (parent, name) it must look up again.
    """

    def __init__(self, directory: Path, *, alone: bool = False, store: Store | None = None) -> None:
        self.told: set[int] = set()
        self.told_names: list[tuple[int, bytes]] = []
        self._no_kernel: list[Any] = [
            mock.patch("pyfuse3.invalidate_inode", self._invalidated),
            mock.patch("pyfuse3.invalidate_entry", lambda parent, name: self.told_names.append((parent, name))),
        ]
        for patch in self._no_kernel:
            patch.start()
        self.loop = Loop()
        self.store: Store = store or MemoryStore()
        users = Users(self.loop, lambda uid: uid)
        self.statistics = Statistics()
        root = Access(0, 0, shared=True)
        subjects = Subjects(self.store, users, root, time.time_ns(), self.statistics.sessions)
        kernel = KernelCache(subjects, self.loop, self.statistics)
        health = DiskHealth(lambda: None)
        budget = Budget()
        commits = Commits(self.loop, self.store, health, self.statistics, kernel)
        self.core = Core(
            store=self.store,
            store_dir=directory,
            definitions=DefinitionChanges(self.loop),
            activity=Activity(kernel.definition_turned),
            subjects=subjects,
            users=users,
            commits=commits,
            contexts=Contexts(subjects, commits, kernel),
            kernel=kernel,
            disk=DiskOperations(directory / "disk", as_root=os.geteuid() == 0, invalidate=kernel.attributes_changed),
            temporaries=Temporaries(budget),
            budget=budget,
            statistics=self.statistics,
            health=health,
            mounter=os.geteuid(),
            alone=alone,
        )
        self.tree = Tree(self.core)
        self.operations = TreeOperations(self.core)

    def _invalidated(self, inode: int, attr_only: bool = False) -> None:
        if attr_only:
            self.told.add(inode)

    def close(self) -> None:
        for part in (self.core.commits, self.core.kernel, self.core.users, self.core.disk):
            part.close()
        for patch in self._no_kernel:
            patch.stop()

    def does(self, handler: Coroutine[Any, Any, T]) -> T:
        """What a handler returns or raises."""
        results: list[T] = []
        errors: list[Exception] = []

        async def main() -> None:
            try:
                results.append(await handler)
            except Exception as error:
                # What leaves a task would end the loop.
                errors.append(error)

        self.loop.run(main)
        for error in errors:
            raise error
        return results[0]

    def outcome(self, handler: Coroutine[Any, Any, Any]) -> int:
        """0, or the errno that the boundary would answer."""
        try:
            self.does(handler)
        except FUSEError as error:
            return int(error.errno)
        except (CtxError, OSError) as error:
            return errno_of(error)
        finally:
            handler.close()
        return 0

    def names(self, inode: int, uid: int = 0) -> dict[str, int]:
        """A directory's names and their offsets, in order; ordinary directories left out."""
        directory = self.tree.entry(node_of(inode))
        return {name: offset for offset, name, _ in self.tree.children(directory, 0, uid)}
