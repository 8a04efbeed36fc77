"""An open ordinary directory: its entries in the disk's own order and positions (spec 1.8).

A listing offset is the disk's cookie for that place, so a listing that goes on while names come and go behaves
exactly as on the disk: no entry twice, none that stays is skipped, no loop.

Used by the FUSE thread only.
"""

import os
from collections import deque

from ctxfs.files.passthrough_calls import DirectoryEntry, read_entries
from ctxfs.files.passthrough_inodes import Inode


class DirectoryStream:
    """A reading position in a directory, over an open descriptor that it owns."""

    def __init__(self, inode: Inode, fd: int) -> None:
        self.inode = inode
        self.fd = fd
        self._position = 0
        self._ahead: deque[DirectoryEntry] = deque()

    def seek(self, position: int) -> None:
        """Goes on after the entry with this position; 0 is the beginning, read anew."""
        if position == 0 or position != self._position:
            os.lseek(self.fd, position, os.SEEK_SET)
            self._ahead.clear()
            self._position = position

    def peek(self) -> DirectoryEntry | None:
        """The next entry, None at the end."""
        if not self._ahead:
            self._ahead.extend(read_entries(self.fd))
        return self._ahead[0] if self._ahead else None

    def advance(self) -> None:
        """Leaves the entry that ``peek`` showed behind."""
        self._position = self._ahead.popleft().position
