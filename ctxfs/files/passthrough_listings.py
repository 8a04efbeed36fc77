"""Open ordinary directories: what a listing of one sends, and the lookups that it counts (spec 1.8).

Used by the FUSE thread only.
"""

import os
import stat
from collections.abc import Set

import pyfuse3
from pyfuse3 import EntryAttributes, ReaddirToken

from ctxfs.files.passthrough_attributes import fill_entry
from ctxfs.files.passthrough_calls import DirectoryEntry
from ctxfs.files.passthrough_descriptors import Descriptors
from ctxfs.files.passthrough_directory import DirectoryStream
from ctxfs.files.passthrough_inodes import Inode, Listed
from ctxfs.files.passthrough_tree import DiskTree, through

DOTS = frozenset((b".", b".."))
_NOTHING: frozenset[bytes] = frozenset()


class Listings:
    """Directories by the descriptor that each has open."""

    def __init__(self, tree: DiskTree, descriptors: Descriptors) -> None:
        self._tree = tree
        self._descriptors = descriptors
        self._streams: dict[int, DirectoryStream] = {}

    def open(self, inode: Inode, uid: int) -> int:
        """Opens a directory for a user (``EMFILE``: that one has too many open); its descriptor."""
        self._descriptors.check(uid)
        fd = os.open(through(self._tree.directory(inode)), os.O_RDONLY | os.O_DIRECTORY)
        self._descriptors.add(fd, uid)
        self._streams[fd] = DirectoryStream(inode, fd)
        inode.lookups += 1
        return fd

    def close(self, fd: int) -> None:
        stream = self._streams.pop(fd)
        self._descriptors.close(fd)
        self._tree.forget(stream.inode, 1)

    def list(self, fd: int, start: int, token: ReaddirToken, *, without: Set[bytes] = _NOTHING) -> bool:
        """Sends what comes after offset ``start``, but for some names; whether the end was reached."""
        stream = self._streams[fd]
        stream.seek(start)
        entry = EntryAttributes()
        while (listed := stream.peek()) is not None:
            inode = None if listed.name in without else self._fill(stream, listed, entry)
            if inode is not None:
                if not pyfuse3.readdir_reply(token, listed.name, entry, listed.position):
                    self._tree.forget(inode, 0)
                    return False
                inode.lookups += listed.name not in DOTS
            stream.advance()
        return True

    def _fill(self, stream: DirectoryStream, listed: DirectoryEntry, entry: EntryAttributes) -> Inode | None:
        """Fills ``entry`` for a name of a listing; None if the name is gone."""
        name = listed.name
        if name in DOTS:
            # The kernel takes number and type of these, and neither attributes nor a lookup.
            above = stream.inode.parent if name == b".." else None
            inode = above or stream.inode
            entry.st_ino, entry.st_mode = inode.number, stat.S_IFDIR
            return inode
        try:
            attributes = os.stat(name, dir_fd=stream.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except PermissionError:
            return self._fill_unseen(stream, listed, entry)
        inode = self._tree.learn(stream.inode, name, attributes)
        fill_entry(entry, inode, attributes)
        return inode

    def _fill_unseen(self, stream: DirectoryStream, listed: DirectoryEntry, entry: EntryAttributes) -> Inode:
        """A directory that its owner, whose daemon this is, may list but not search: names and kinds only."""
        device, _ = stream.inode.identity
        inode = self._tree.learn(stream.inode, listed.name, Listed(device, listed.inode, listed.kind))
        entry.st_ino, entry.st_mode = inode.number, listed.kind
        entry.entry_timeout = entry.attr_timeout = 0
        return inode
