"""From an inode number to the file on the disk, without ever following a symlink (spec 1.8).

``DiskTree`` finds files again through the names in its ``InodeTable``: a directory by openat2 from its nearest
open ancestor (beneath it, no symlinks), anything else by one name in its directory; each find is checked
against the identity the kernel was told, so a disk changed behind our back answers ``ESTALE``, which makes the
kernel look the path up again, and never another file.

No inode holds a descriptor, but for: the directories used last (``DIRECTORY_LIMIT``), and files and directories
that lost their last name while the kernel still knows them (in use somewhere): those are only reachable so.

Used by the FUSE thread only. Makes no decision about rights.
"""

import errno
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from backend.system_calls import RENAME_EXCHANGE, rename
from ctxfs.files.passthrough_calls import open_beneath
from ctxfs.files.passthrough_inodes import DISK_TAG, Inode, InodeTable, Listed, identity_of

DIRECTORY_LIMIT = 256
_PATH_LIMIT = 4000
_LOST = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV)


def stale() -> OSError:
    """The disk does not have what the kernel was told of."""
    return OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def leaf(name: bytes) -> bytes:
    """``name`` if it is one name in a directory; the kernel sends no other, and no other may pass (``EINVAL``)."""
    if b"/" in name or name in (b"", b".", b".."):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return name


def through(fd: int) -> str:
    """A path that leads to what an O_PATH descriptor holds, for calls that take no such descriptor."""
    return f"/proc/self/fd/{fd}"


class DiskTree:
    """The directories below ``base`` (0700, made when missing) and what the kernel knows of them."""

    def __init__(self, base: Path) -> None:
        base.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(base, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        os.chmod(through(fd), 0o700)
        attributes = os.fstat(fd)
        self.table = InodeTable(attributes.st_dev)
        self.base = Inode(DISK_TAG | attributes.st_ino, attributes)
        self.base.fd = fd
        self._recent: OrderedDict[Inode, None] = OrderedDict()

    def close(self) -> None:
        """Gives up every descriptor; nothing else may be called afterwards."""
        for inode in (self.base, *self.table):
            self._close(inode)

    def directory(self, inode: Inode) -> int:
        """An O_PATH descriptor of a directory; good until ``DIRECTORY_LIMIT`` others were asked for."""
        if inode.fd < 0:
            inode.fd = self._open_directory(inode)
            self._recent[inode] = None
            if len(self._recent) > DIRECTORY_LIMIT:
                self._close(next(iter(self._recent)))
        elif inode in self._recent:
            self._recent.move_to_end(inode)
        return inode.fd

    def _open_directory(self, inode: Inode) -> int:
        names: list[bytes] = []
        ancestor = inode
        while ancestor.fd < 0:
            if ancestor.parent is None:
                raise stale()
            names.append(ancestor.name)
            ancestor = ancestor.parent
        try:
            fd = _open_path(ancestor.fd, names[::-1])
        except OSError as error:
            raise stale() if error.errno in _LOST else error from None
        if identity_of(os.fstat(fd)) != inode.identity:
            os.close(fd)
            raise stale()
        return fd

    def stat(self, inode: Inode) -> os.stat_result:
        """The attributes of any known inode, as the disk has them."""
        if inode.fd >= 0 or inode.is_directory:
            return os.fstat(self.directory(inode))
        for parent, name in inode.names():
            with suppress(FileNotFoundError):
                attributes = os.stat(name, dir_fd=self.directory(parent), follow_symlinks=False)
                if identity_of(attributes) == inode.identity:
                    return attributes
        raise stale()

    @contextmanager
    def held(self, inode: Inode) -> Iterator[int]:
        """An O_PATH descriptor of any known inode for the time of the block."""
        if inode.fd >= 0 or inode.is_directory:
            yield self.directory(inode)
            return
        fd = self._open_file(inode)
        try:
            yield fd
        finally:
            os.close(fd)

    def _open_file(self, inode: Inode) -> int:
        for parent, name in inode.names():
            with suppress(FileNotFoundError):
                fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self.directory(parent))
                if identity_of(os.fstat(fd)) == inode.identity:
                    return fd
                os.close(fd)
        raise stale()

    def look_up(self, parent: Inode, name: bytes) -> tuple[Inode, os.stat_result]:
        """What ``name`` in ``parent`` is; the caller counts the lookup."""
        attributes = os.stat(name, dir_fd=self.directory(parent), follow_symlinks=False)
        return self.learn(parent, name, attributes), attributes

    def learn(self, parent: Inode, name: bytes, attributes: os.stat_result | Listed) -> Inode:
        """The inode that ``name`` in ``parent`` leads to; the caller counts the lookup."""
        inode = self.table.learn(parent, name, attributes)
        if inode.fd >= 0 and not inode.is_directory:
            # It had lost the names that were known, and this is another.
            self._close(inode)
        return inode

    @contextmanager
    def unlinking(self, parent: Inode, name: bytes) -> Iterator[None]:
        """Around a call that takes ``name`` away (by removing it, or by renaming another onto it).

        What has no other known name, and is still known to the kernel, stays reachable until it is forgotten.
        """
        fd = self._open_if_there(parent, name)
        if fd is None:
            yield
            return
        try:
            inode = self.table.known(os.fstat(fd))
            yield
            if inode is None:
                return
            self._close_all(self.table.remove_name(inode, parent, name))
            if os.fstat(fd).st_nlink == 0:
                self.table.bury(inode)
            if inode.parent is None:
                self._keep(inode, os.dup(fd))
                self.forget(inode, 0)
        finally:
            os.close(fd)

    def _open_if_there(self, parent: Inode, name: bytes) -> int | None:
        try:
            return os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self.directory(parent))
        except FileNotFoundError:
            return None

    def _keep(self, inode: Inode, fd: int) -> None:
        self._close(inode)
        inode.fd = fd

    def rename(self, parent: Inode, name: bytes, new_parent: Inode, new_name: bytes, flags: int) -> None:
        """renameat2(2) between two directories; what is known keeps its number under the new name."""
        old = self.directory(parent), name
        new = self.directory(new_parent), new_name
        moved = self._known_at(*old)
        if flags & RENAME_EXCHANGE:
            exchanged = self._known_at(*new)
            rename(*old, *new, flags)
            self._move(exchanged, (new_parent, new_name), (parent, name))
        else:
            with self.unlinking(new_parent, new_name):
                rename(*old, *new, flags)
        self._move(moved, (parent, name), (new_parent, new_name))

    def _known_at(self, directory: int, name: bytes) -> Inode | None:
        return self.table.known(os.stat(name, dir_fd=directory, follow_symlinks=False))

    def _move(self, inode: Inode | None, old: tuple[Inode, bytes], new: tuple[Inode, bytes]) -> None:
        if inode is not None:
            self._close_all(self.table.remove_name(inode, *old))
            inode.add_name(*new)

    def forget(self, inode: Inode, lookups: int) -> None:
        """The kernel takes ``lookups`` of its references back."""
        self._close_all(self.table.forget(inode, lookups))

    def _close_all(self, inodes: list[Inode]) -> None:
        for inode in inodes:
            self._close(inode)

    def _close(self, inode: Inode) -> None:
        self._recent.pop(inode, None)
        if inode.fd >= 0:
            os.close(inode.fd)
            inode.fd = -1


def _open_path(directory: int, names: list[bytes]) -> int:
    """An O_PATH descriptor of the directory ``names`` lead to, however long: one call takes 4096 bytes of path."""
    fd = directory
    for path in _paths(names):
        try:
            step = open_beneath(fd, path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        finally:
            if fd != directory:
                os.close(fd)
        fd = step
    return fd


def _paths(names: list[bytes]) -> Iterator[bytes]:
    part: list[bytes] = []
    size = 0
    for name in names:
        if size + len(name) > _PATH_LIMIT:
            yield b"/".join(part)
            part, size = [], 0
        part.append(name)
        size += len(name) + 1
    yield b"/".join(part)
