"""What every handler of one mount works with, in one value; no logic."""

import dataclasses
from collections import Counter
from pathlib import Path

from backend.store import Store
from ctxfs.activity import Activity
from ctxfs.budget import Budget
from ctxfs.commits import Commits
from ctxfs.contexts import Contexts
from ctxfs.definition_changes import DefinitionChanges
from ctxfs.disk_health import DiskHealth
from ctxfs.files.passthrough import DiskOperations
from ctxfs.files.temporaries import Temporaries
from ctxfs.inodes import Node
from ctxfs.kernel_cache import KernelCache
from ctxfs.statistics import Statistics
from ctxfs.subjects import Subjects
from ctxfs.users import Users


@dataclasses.dataclass(slots=True)
class Core:
    """``mounter`` is the uid that mounted: 0 for a mount for every user; ``alone`` is a user's own mount.

    ``pending`` counts the writers that are about to make a file.
    """

    store: Store
    store_dir: Path
    subjects: Subjects
    users: Users
    commits: Commits
    contexts: Contexts
    kernel: KernelCache
    definitions: DefinitionChanges
    activity: Activity
    disk: DiskOperations
    temporaries: Temporaries
    budget: Budget
    statistics: Statistics
    health: DiskHealth
    mounter: int
    alone: bool
    pending: Counter[Node] = dataclasses.field(default_factory=Counter)
