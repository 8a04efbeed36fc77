"""Open files: what a descriptor on the mount leads to. One object per ``open``; each answers every call itself.

Rights are those of the opener, checked once at open (spec 1.8). Handles belong to the FUSE thread.
"""

import errno
import os
from typing import TYPE_CHECKING

import msgspec
from pyfuse3 import FUSEError

from ctxfs.inodes import Node
from ctxfs.kernel_cache import Watcher

if TYPE_CHECKING:
    from ctxfs.content import Content
    from ctxfs.core import Core


class Opening(msgspec.Struct, frozen=True):
    """One ``open``: of ``node``, which the kernel knows by ``inode``, by ``uid`` with ``flags``."""

    core: "Core"
    content: "Content"
    inode: int
    node: Node
    uid: int
    flags: int

    @property
    def appends(self) -> bool:
        """``O_APPEND``: the kernel's offsets mean nothing."""
        return bool(self.flags & os.O_APPEND)


class Handle:
    """A file opened for reading, and the base of those opened for writing."""

    def __init__(self, opening: Opening) -> None:
        self.core = opening.core
        self.content = opening.content
        self.inode = opening.inode
        self.node = opening.node
        self.uid = opening.uid
        self.watcher = Watcher()

    async def read(self, offset: int, size: int) -> bytes:
        """What every reader sees at this moment."""
        return self.content.read(self.node, self.inode, offset, size)

    async def write(self, offset: int, data: bytes) -> int:
        raise FUSEError(errno.EBADF)

    def truncate(self, size: int) -> None:
        """``ftruncate`` through this handle."""
        raise FUSEError(errno.EBADF)

    def truncate_at_open(self) -> None:
        """``O_TRUNC``."""
        self.truncate(0)

    async def flush(self) -> None:
        """Each ``close`` of a copy of the descriptor."""

    async def fsync(self) -> None:
        """Also of a reader: what anybody appended is on disk when it returns."""
        await self.core.commits.sync()

    async def has_changed(self) -> bool:
        """Whether it is true what the kernel cache says: the file grew since this was last asked."""
        return True

    def release(self) -> None:
        """The last copy is closed."""


class Writer(Handle):
    """Base of the handles that append to a log, as lines or as recorded values.

    What it stored is counted: each ``close`` waits until all that was stored before it is on disk (spec 1.3), also
    while another copy of the descriptor is being closed. ``held`` counts bytes in the budget.
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._stored = 0
        self._on_disk = 0
        self._held = 0

    def stored(self) -> None:
        """Something was stored through this handle that a ``close`` must wait for."""
        self._stored += 1

    def hold(self, size: int) -> None:
        """Accounts for what the handle keeps in memory."""
        if size != self._held:
            self.core.budget.resize(self.uid, self._held, size)
            self._held = size

    async def fsync(self) -> None:
        self.stored()
        await self.flush()

    async def synced(self) -> None:
        """Waits until what this handle stored before the call is on disk."""
        stored = self._stored
        if self._on_disk < stored:
            await self.core.commits.sync()
            self._on_disk = max(self._on_disk, stored)

    def release(self) -> None:
        self.hold(0)
        super().release()


class MakingWriter(Writer):
    """A writer of a file that need not be there yet: while it is open, its name leads to an empty file."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self.core.pending[self.node] += 1

    def release(self) -> None:
        self.core.pending[self.node] -= 1
        if not self.core.pending[self.node]:
            del self.core.pending[self.node]
        super().release()
