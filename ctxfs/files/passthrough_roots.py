"""Where ordinary directories begin on the disk: ``home/<uid>/agent/<agent>/data`` and its like (spec 1.2, 1.8).

A *root* is named by its key, its path below the base with ``/`` between the parts. The directories above it are the
daemon's alone (0700). What the kernel may do in a root is up to its own owner, group and mode on the disk.

Used by the FUSE thread only.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from backend.names import is_uid
from backend.system_calls import RENAME_NOREPLACE, rename
from ctxfs.files.passthrough_calls import read_entries
from ctxfs.files.passthrough_inodes import Inode, Place
from ctxfs.files.passthrough_tree import DiskTree, leaf, through

_DOTS = (b".", b"..")


class Roots:
    """Finds, makes and removes roots. ``found`` ones stay known as long as the mount lives or until removed."""

    def __init__(self, tree: DiskTree) -> None:
        self._tree = tree
        self._found: dict[str, Inode] = {}

    def find(self, key: str) -> Inode:
        """The root called ``key``; ``FileNotFoundError`` if the disk has none."""
        if key not in self._found:
            with self._reached(_parts(key)) as root:
                if not root.is_directory:
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                root.lookups += 1
                root.place = Place(_home_of(key))
                self._found[key] = root
        return self._found[key]

    @contextmanager
    def visited(self, key: str) -> Iterator[Inode]:
        """A closed root for the time of the block, and as long as the kernel knows something in it."""
        with self._reached(_parts(key)) as root:
            if not root.is_directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            if root.place is None:
                root.place = Place(_home_of(key))
                root.place.is_closed = True
            yield root

    @contextmanager
    def _reached(self, parts: list[bytes]) -> Iterator[Inode]:
        """A directory by its path below the base, for the time of the block."""
        inode = self._tree.base
        try:
            for name in parts:
                inode, _ = self._tree.look_up(inode, name)
            yield inode
        finally:
            self._tree.forget(inode, 0)

    def make(self, key: str, uid: int, gid: int, mode: int) -> Inode:
        """Makes a root and what is missing above it; an existing one stays as it is (safe to repeat after a crash).

        A uid or gid of -1 is that of the daemon.
        """
        self.add(key, uid, gid, mode)
        return self.find(key)

    def add(self, key: str, uid: int, gid: int, mode: int) -> None:
        """As ``make``, of a root that is only visited."""
        *above, name = _parts(key)
        for depth, part in enumerate(above):
            with self._reached(above[:depth]) as parent, suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=self._tree.directory(parent))
        with self._reached(above) as parent, suppress(FileExistsError):
            _make_owned(self._tree.directory(parent), name, uid, gid, mode)

    def is_empty(self, key: str) -> bool:
        """Whether nothing is in the root called ``key``."""
        fd = os.open(through(self._tree.directory(self.find(key))), os.O_RDONLY | os.O_DIRECTORY)
        try:
            while entries := read_entries(fd):
                if any(entry.name not in _DOTS for entry in entries):
                    return False
        finally:
            os.close(fd)
        return True

    def remove(self, key: str) -> None:
        """Removes an empty root, and what is empty above it; ``OSError(ENOTEMPTY)`` if something is in it.

        A home stays: it is there without being made, and the base may be that of a store which keeps it (jsonl).
        """
        root = self.find(key)
        parts = _parts(key)
        self._remove_empty(parts)
        del self._found[key]
        self._tree.forget(root, 1)
        with suppress(OSError):
            while (parts := parts[:-1]) and not _is_home(parts):
                self._remove_empty(parts)

    def _remove_empty(self, parts: list[bytes]) -> None:
        *above, name = parts
        with self._reached(above) as parent, self._tree.unlinking(parent, name):
            os.rmdir(name, dir_fd=self._tree.directory(parent))


def check_home(inode: Inode, uid: int) -> None:
    """A home is its uid's, and uid 0's (spec 1.8): ``PermissionError`` for others, wherever they came by the inode."""
    if uid != 0 and not any(place is None or place.home in (None, uid) for place in inode.places()):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def check_writable(inode: Inode) -> None:
    """``EROFS`` for what was archived, under any name."""
    if any(place is not None and place.is_read_only for place in inode.places()):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def check_same_place(inode: Inode, other: Inode) -> None:
    """``EXDEV`` for a name that would lead into a closed root, or out of it."""
    places = {*inode.places(), *other.places()}
    if len(places) > 1 and any(place is not None and place.is_closed for place in places):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def _home_of(key: str) -> int | None:
    match key.split("/"):
        case ["home", name, *_] if is_uid(name):
            return int(name)
    return None


def _parts(key: str) -> list[bytes]:
    return [leaf(os.fsencode(part)) for part in key.split("/")]


def _is_home(parts: list[bytes]) -> bool:
    return len(parts) == 2 and parts[0] == b"home"


def _make_owned(parent: int, name: bytes, uid: int, gid: int, mode: int) -> None:
    # Made under another name, so that a root is never seen with the wrong owner, whenever the daemon dies.
    unfinished = b"." + name
    with suppress(FileExistsError):
        os.mkdir(unfinished, 0o700, dir_fd=parent)
    fd = os.open(unfinished, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        os.chown(through(fd), uid, gid)
        os.chmod(through(fd), mode)
    finally:
        os.close(fd)
    try:
        rename(parent, unfinished, parent, name, RENAME_NOREPLACE)
    except FileExistsError:
        os.rmdir(unfinished, dir_fd=parent)
        raise
