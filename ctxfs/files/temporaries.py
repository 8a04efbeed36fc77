"""Files that programs make beside the one they replace: kept in memory, each for its own uid (spec 1.4).

A temporary is keyed by (directory, uid, name), so two users, or two saves, never share one. It is never listed, is
gone at unmount or an hour after its last use, and its bytes count in the budget.
"""

import dataclasses
import errno
import stat
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyfuse3 import EntryAttributes, FUSEError

from backend.facts import later
from ctxfs.files.handles import Handle, Opening
from ctxfs.inodes import Kind, Node, blocks, inode_of

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
    key: Key | None
    used_ns: int
    mtime: int
    kept: EntryAttributes
    content: bytearray = dataclasses.field(default_factory=bytearray)
    target: Node | None = None
    handles: int = 0
    lookups: int = 0

    @property
    def is_gone(self) -> bool:
        """No name and no handle is left: nobody can open it any more."""
        return self.key is None and self.handles == 0

    @property
    def attributes(self) -> EntryAttributes:
        """Its own, as long as it is no alias; what never changes in them is ``kept``."""
        attributes, size = self.kept, len(self.content)
        attributes.st_size = size
        attributes.st_blocks = blocks(size)
        attributes.st_mtime_ns = attributes.st_ctime_ns = self.mtime
        return attributes


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
        node, now = Node(Kind.TEMPORARY, self._last), self._clock()
        temporary = Temporary(node, uid, (directory, uid, name), now, now, _private(node, uid, gid, now))
        self._named[directory, uid, name] = self._all[self._last] = temporary
        return temporary

    def resize(self, temporary: Temporary, size: int) -> None:
        """Makes room, or cuts; new bytes are zero."""
        old = len(temporary.content)
        self._budget.resize(temporary.uid, old, size)
        temporary.content[size:] = bytes(max(0, size - old))
        temporary.mtime = later(temporary.mtime, self._clock())

    def write(self, temporary: Temporary, offset: int, data: bytes) -> None:
        """Overwrites, with zeros before it where ``offset`` is beyond the end."""
        end = offset + len(data)
        if end > len(temporary.content):
            self.resize(temporary, end)
        temporary.content[offset:end] = data
        temporary.mtime = later(temporary.mtime, self._clock())

    def touch(self, temporary: Temporary) -> None:
        """Counts as a use: one is found, open, or closed. Those with a name are kept in the order of their last."""
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
        """Frees its content once it has no name and no handle, and all of it once the kernel has forgotten it too.

        The kernel forgets when it likes, and the next write of its uid may need the room at once.
        """
        if temporary.is_gone:
            if temporary.content:
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


def _private(node: Node, uid: int, gid: int, now_ns: int) -> EntryAttributes:
    """What never changes in the attributes of one: its uid's alone, never cached, not even by name (spec 1.4)."""
    attributes = EntryAttributes()
    attributes.st_ino = inode_of(node)
    attributes.st_mode = stat.S_IFREG | 0o600
    attributes.st_uid = uid
    attributes.st_gid = gid
    attributes.st_atime_ns = now_ns
    attributes.entry_timeout = attributes.attr_timeout = 0
    return attributes


def _refuse_probe(name: str) -> None:
    """vim probes with such a name and, refused, writes in place."""
    if name.isascii() and name.isdigit():
        raise FUSEError(errno.EACCES)


class TemporaryHandle(Handle):
    """An open temporary. Once it was renamed onto a target it reads its own content and refuses writes."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._append = opening.appends
        self._temporaries = self.core.temporaries
        self._temporary = self._temporaries.get(opening.node.id)
        self._temporary.handles += 1

    async def read(self, offset: int, size: int) -> bytes:
        return bytes(self._temporary.content[offset : offset + size])

    async def write(self, offset: int, data: bytes) -> int:
        temporary = self._writable()
        self._temporaries.write(temporary, len(temporary.content) if self._append else offset, data)
        return len(data)

    def truncate(self, size: int) -> None:
        self._temporaries.resize(self._writable(), size)

    async def fsync(self) -> None:
        """It is in memory only; the rename that stores it waits for the disk."""

    def _writable(self) -> Temporary:
        if self._temporary.target is not None:
            raise FUSEError(errno.EBADF)
        return self._temporary

    def release(self) -> None:
        self._temporary.handles -= 1
        self._temporaries.touch(self._temporary)
        self._temporaries.settle(self._temporary)
