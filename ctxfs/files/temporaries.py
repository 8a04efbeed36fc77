"""Files that programs make beside the one they replace: kept in memory, each for its own uid (spec 1.4).

A temporary is keyed by (directory, uid, name), so two users, or two saves, never share one. It is never listed, is
gone at unmount or an hour after its last use, and its bytes count in the budget.
"""

import dataclasses
import errno
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyfuse3 import FUSEError

from ctxfs.files.handles import Handle, Opening
from ctxfs.inodes import Kind, Node

if TYPE_CHECKING:
    from ctxfs.budget import Budget

IDLE_LIMIT_NS = 3600 * 10**9
# Empty ones cost memory too, which no budget of bytes would bound.
USER_COUNT_LIMIT = 10_000

Key = tuple[int, int, str]


@dataclasses.dataclass(slots=True, eq=False)
class Temporary:
    """``key`` is None once it has no name; ``target`` is what it was renamed onto (its inode is an alias then)."""

    node: Node
    uid: int
    gid: int
    key: Key | None
    used_ns: int
    mtime: int
    content: bytearray = dataclasses.field(default_factory=bytearray)
    target: Node | None = None
    handles: int = 0
    lookups: int = 0


class Temporaries:
    """All temporaries of a mount."""

    def __init__(self, budget: "Budget", clock: Callable[[], int] = time.time_ns) -> None:
        self._budget = budget
        self._clock = clock
        self._named: OrderedDict[Key, Temporary] = OrderedDict()
        self._all: dict[int, Temporary] = {}
        self._counts: Counter[int] = Counter()
        self._last = 0

    def find(self, directory: int, uid: int, name: str) -> Temporary | None:
        """The temporary of that name, for its own uid only."""
        temporary = self._named.get((directory, uid, name))
        if temporary is None:
            return None
        if self._idle(temporary) and temporary.handles == 0:
            self._unname(temporary)
            return None
        self.touch(temporary)
        return temporary

    def get(self, number: int) -> Temporary:
        """By the id in its inode number."""
        temporary = self._all.get(number)
        if temporary is None:
            raise FUSEError(errno.ENOENT)
        return temporary

    def create(self, directory: int, uid: int, gid: int, name: str) -> Temporary:
        self._expire()
        _refuse_probe(name)
        if self._counts[uid] >= USER_COUNT_LIMIT:
            raise FUSEError(errno.ENOSPC)
        self._counts[uid] += 1
        self._last += 1
        now = self._clock()
        temporary = Temporary(Node(Kind.TEMPORARY, self._last), uid, gid, (directory, uid, name), now, now)
        self._named[directory, uid, name] = self._all[self._last] = temporary
        return temporary

    def resize(self, temporary: Temporary, size: int) -> None:
        """Makes room, or cuts; new bytes are zero."""
        if size != len(temporary.content):
            self._budget.resize(temporary.uid, len(temporary.content), size)
            temporary.content[size:] = bytes(max(0, size - len(temporary.content)))
        self.touch(temporary)
        temporary.mtime = max(temporary.mtime + 1, temporary.used_ns)

    def touch(self, temporary: Temporary) -> None:
        """Counts as a use; those with a name are kept in the order of their last use."""
        temporary.used_ns = self._clock()
        if temporary.key is not None:
            self._named.move_to_end(temporary.key)

    def unlink(self, temporary: Temporary) -> None:
        self._unname(temporary)

    def rename(self, temporary: Temporary, name: str) -> None:
        """To another temporary name in the same directory, replacing what is there."""
        _refuse_probe(name)
        assert temporary.key is not None
        directory, uid, _ = temporary.key
        other = self._named.get((directory, uid, name))
        if other is temporary:
            return
        if other is not None:
            self._unname(other)
        del self._named[temporary.key]
        temporary.key = (directory, uid, name)
        self._named[temporary.key] = temporary

    def become(self, temporary: Temporary, target: Node) -> None:
        """It was renamed onto ``target``: no name any more, an alias until the kernel forgets it."""
        temporary.target = target
        self._unname(temporary)

    def settle(self, temporary: Temporary) -> None:
        """Frees it once nothing can reach it: no name, no handle, no lookup."""
        if temporary.key is None and temporary.handles == 0:
            if temporary.content and (temporary.lookups == 0 or temporary.target is not None):
                self.resize(temporary, 0)
            if temporary.lookups == 0 and self._all.pop(temporary.node.id, None) is not None:
                self._counts[temporary.uid] -= 1

    def _unname(self, temporary: Temporary) -> None:
        if temporary.key is not None:
            self._named.pop(temporary.key, None)
            temporary.key = None
        self.settle(temporary)

    def _idle(self, temporary: Temporary) -> bool:
        return self._clock() - temporary.used_ns > IDLE_LIMIT_NS

    def _expire(self) -> None:
        """Those used last are last, and an open one counts as used: looking ends at the first that is not idle."""
        while self._named and self._idle(oldest := next(iter(self._named.values()))):
            if oldest.handles:
                self.touch(oldest)
            else:
                self._unname(oldest)


def _refuse_probe(name: str) -> None:
    """vim probes with such a name and, refused, writes in place."""
    if name.isascii() and name.isdigit():
        raise FUSEError(errno.EACCES)


class TemporaryHandle(Handle):
    """An open temporary. Once it was renamed onto a target it reads its own content and refuses writes."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._append = opening.appends
        self._temporary = self.core.temporaries.get(opening.node.id)
        self._temporary.handles += 1

    async def read(self, offset: int, size: int) -> bytes:
        self.core.temporaries.touch(self._temporary)
        return bytes(self._temporary.content[offset : offset + size])

    async def write(self, offset: int, data: bytes) -> int:
        self._check_writable()
        start = len(self._temporary.content) if self._append else offset
        end = start + len(data)
        self.core.temporaries.resize(self._temporary, max(end, len(self._temporary.content)))
        self._temporary.content[start:end] = data
        return len(data)

    def truncate(self, size: int) -> None:
        self._check_writable()
        self.core.temporaries.resize(self._temporary, size)

    async def fsync(self) -> None:
        """It is in memory only; the rename that stores it waits for the disk."""

    def _check_writable(self) -> None:
        if self._temporary.target is not None:
            raise FUSEError(errno.EBADF)

    def release(self) -> None:
        self._temporary.handles -= 1
        self.core.temporaries.settle(self._temporary)
