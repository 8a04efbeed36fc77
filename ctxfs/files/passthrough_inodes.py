"""Which inodes of the disk the kernel knows, and under which names (spec 1.8).

Pure bookkeeping: nothing here makes a system call. An inode is a number for the kernel, an identity on the disk
(device, inode number), its names as (directory, name) pairs, and the kernel's lookup count. It lives while the
kernel remembers it or a known inode has a name in it, so every known inode can be reached from the root of the tree.

The number is the disk's own inode number with ``DISK_TAG`` set: stable across forgets and remounts, so that tools
which compare inode numbers (hard links in tar, git's index) see what they see on the disk. Only files of another
device, or a number that the kernel still uses for a file that is gone, get one from a counter (``_SPARE_TAG``).

Used by the FUSE thread only.
"""

import errno
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

DISK_TAG = 1 << 62
_SPARE_TAG = DISK_TAG | 1 << 61

Identity = tuple[int, int]


class Listed(NamedTuple):
    """What a listing tells of a file that may not be looked at."""

    st_dev: int
    st_ino: int
    st_mode: int


def identity_of(attributes: os.stat_result | Listed) -> Identity:
    """What tells two files of the disk apart."""
    return attributes.st_dev, attributes.st_ino


class Place:
    """What holds for all that is in a root. ``home``: the uid whose home it is in, if it is in one.

    ``is_closed``: no name of it leads anywhere else, and none from elsewhere into it. ``is_read_only``: it was
    archived.
    """

    __slots__ = ("home", "is_closed", "is_read_only")

    def __init__(self, home: int | None) -> None:
        self.home = home
        self.is_closed = False
        self.is_read_only = False


class Inode:
    """A file of the disk as the kernel knows it.

    ``fd`` is an O_PATH descriptor or -1: directories in recent use and files without a name have one.
    ``children`` counts the names that known inodes have in this directory. ``place`` is a root's.
    ``has_no_capability`` is known of a file that the kernel asked about: it asks before every write.
    """

    __slots__ = (
        *("_other_names", "children", "fd", "has_no_capability", "identity", "kind", "lookups"),
        *("name", "number", "parent", "place"),
    )

    def __init__(self, number: int, attributes: os.stat_result | Listed) -> None:
        self.number = number
        self.identity = identity_of(attributes)
        self.kind = stat.S_IFMT(attributes.st_mode)
        self.parent: Inode | None = None
        self.name = b""
        self._other_names: set[tuple[Inode, bytes]] | None = None
        self.lookups = 0
        self.children = 0
        self.fd = -1
        self.place: Place | None = None
        self.has_no_capability = False

    @property
    def is_directory(self) -> bool:
        return self.kind == stat.S_IFDIR

    def names(self) -> Iterator[tuple["Inode", bytes]]:
        """Every name it has, as far as the kernel was told."""
        if self.parent is not None:
            yield self.parent, self.name
        if self._other_names:
            yield from self._other_names

    def places(self) -> Iterator[Place | None]:
        """The root that it is in, by each name (None: by none); a directory has one, and what has no name none."""
        if self.place is not None or self.parent is None:
            yield self.place
            return
        for parent, _ in self.names():
            directory: Inode | None = parent
            while directory is not None and directory.place is None:
                directory = directory.parent
            yield None if directory is None else directory.place

    def _has_name(self, parent: "Inode", name: bytes) -> bool:
        if self.parent is parent and self.name == name:
            return True
        return self._other_names is not None and (parent, name) in self._other_names

    def add_name(self, parent: "Inode", name: bytes) -> None:
        if self._has_name(parent, name):
            return
        parent.children += 1
        if self.parent is None:
            self.parent, self.name = parent, name
        else:
            self._other_names = self._other_names or set()
            self._other_names.add((parent, name))

    def remove_name(self, parent: "Inode", name: bytes) -> None:
        if not self._has_name(parent, name):
            return
        parent.children -= 1
        if self.parent is not parent or self.name != name:
            assert self._other_names is not None
            self._other_names.remove((parent, name))
        else:
            self.parent, self.name = self._other_names.pop() if self._other_names else (None, b"")


class InodeTable:
    """All known inodes. ``device`` is the one whose inode numbers are kept."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._by_number: dict[int, Inode] = {}
        self._by_identity: dict[Identity, Inode] = {}
        self._spare = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Inode]:
        return iter(self._by_number.values())

    def __contains__(self, number: int) -> bool:
        return number in self._by_number

    def __getitem__(self, number: int) -> Inode:
        try:
            return self._by_number[number]
        except KeyError:
            raise OSError(errno.ESTALE, f"inode {number} is unknown") from None

    def known(self, attributes: os.stat_result | Listed) -> Inode | None:
        """The inode with these attributes' identity, if the kernel was told of it."""
        inode = self._by_identity.get(identity_of(attributes))
        return inode if inode is not None and inode.kind == stat.S_IFMT(attributes.st_mode) else None

    def learn(self, parent: Inode, name: bytes, attributes: os.stat_result | Listed) -> Inode:
        """The inode that ``name`` in ``parent`` leads to, new if need be; the caller counts the lookup."""
        inode = self.known(attributes)
        if inode is None:
            inode = Inode(self._free_number(attributes), attributes)
            self._by_number[inode.number] = inode
            self._by_identity[inode.identity] = inode
        elif inode.is_directory and inode.parent is not None and (inode.parent, inode.name) != (parent, name):
            # A directory has one name: it was moved behind our back.
            self.remove_name(inode, inode.parent, inode.name)
        inode.add_name(parent, name)
        return inode

    def _free_number(self, attributes: os.stat_result | Listed) -> int:
        number = DISK_TAG | attributes.st_ino
        if attributes.st_dev == self._device and number < _SPARE_TAG and number not in self._by_number:
            return number
        self._spare += 1
        return _SPARE_TAG | self._spare

    def remove_name(self, inode: Inode, parent: Inode, name: bytes) -> list[Inode]:
        """Takes a name away; returns the inodes that are gone by it (directories nobody knows any more)."""
        inode.remove_name(parent, name)
        return self._collect(parent)

    def bury(self, inode: Inode) -> None:
        """Its last link is gone: the disk may use the identity again, the kernel still knows the number."""
        if self._by_identity.get(inode.identity) is inode:
            del self._by_identity[inode.identity]

    def forget(self, inode: Inode, lookups: int) -> list[Inode]:
        """Takes ``lookups`` back; returns the inodes that are gone by it."""
        inode.lookups -= lookups
        return self._collect(inode)

    def _collect(self, inode: Inode) -> list[Inode]:
        gone: list[Inode] = []
        idle = [inode]
        while idle:
            inode = idle.pop()
            if inode.lookups > 0 or inode.children > 0 or self._by_number.pop(inode.number, None) is None:
                continue
            self.bury(inode)
            gone.append(inode)
            for parent, name in list(inode.names()):
                inode.remove_name(parent, name)
                idle.append(parent)
        return gone
