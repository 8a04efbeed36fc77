"""What every handler of one mount works with, in one value; no logic."""

import dataclasses
import errno
from collections import Counter
from pathlib import Path

from pyfuse3 import FUSEError

from backend.store import FileStore
from ctxfs.commits import Commits
from ctxfs.files.passthrough import DiskOperations
from ctxfs.files.temporaries import Temporaries
from ctxfs.inodes import Node
from ctxfs.kernel_cache import KernelCache
from ctxfs.statistics import Health, Statistics
from ctxfs.subjects import Subjects
from ctxfs.users import Users

USER_LIMIT = 64 << 20
TOTAL_LIMIT = 512 << 20


class Budget:
    """Memory that writers hold before anything is stored: temporaries, rests, pending values (spec 1.4)."""

    def __init__(self) -> None:
        self._users: Counter[int] = Counter()
        self._total = 0

    def resize(self, uid: int, old: int, new: int) -> None:
        """Accounts for ``old`` bytes becoming ``new``; ``ENOSPC`` above 64 MiB a user or 512 MiB in all."""
        growth = new - old
        if growth > 0 and (self._users[uid] + growth > USER_LIMIT or self._total + growth > TOTAL_LIMIT):
            raise FUSEError(errno.ENOSPC)
        self._users[uid] += growth
        self._total += growth


@dataclasses.dataclass(slots=True)
class Core:
    """``mounter`` is the uid that mounted: 0 for a mount for every user; ``alone`` is a user's own mount.

    ``pending`` counts the writers that are about to make a file.
    """

    store: FileStore
    store_dir: Path
    subjects: Subjects
    users: Users
    commits: Commits
    kernel: KernelCache
    disk: DiskOperations
    temporaries: Temporaries
    budget: Budget
    statistics: Statistics
    health: Health
    mounter: int
    alone: bool
    pending: Counter[Node] = dataclasses.field(default_factory=Counter)
