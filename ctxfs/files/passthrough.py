"""Ordinary directories of the mount, kept on the store's disk as they are (spec 1.2, 1.8).

``DiskOperations`` has the handlers of ``pyfuse3.Operations`` for inodes and file handles with ``DISK_TAG`` set; the
dispatcher in front of it sends it those and no other. They raise ``OSError`` only; turning that into an answer is
the dispatcher's (one boundary for errors).

Who may do what has been checked by the kernel (``default_permissions``) against the attributes shown here, before
a request arrives; beside that, opening and changes of names in a home are its uid's and uid 0's. What is left to do
here is what the kernel expects of a file system: new files belong to the caller, setgid directories hand down their
group, truncation by ``open`` clears setuid and setgid. The umask has been applied, and setuid and setgid are cleared on
write, truncate and chown by a setattr that the kernel sends, as long as no file is opened with ``direct_io`` (it skips
that).

Only the daemon changes the disk, so the kernel may keep names, attributes and pages (an hour, ``keep_cache``).

Runs on the FUSE thread only. Nothing here awaits, but for what may wait long for the disk (fsync, reads of what is not
in memory, big writes): that awaits ``offload``.
"""

import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, ReaddirToken, RequestContext, SetattrFields, StatvfsData

from backend.system_calls import RENAME_EXCHANGE, RENAME_NOREPLACE
from ctxfs.files.passthrough_attributes import changes_others, entry_of, give_to_caller, set_mode
from ctxfs.files.passthrough_blocking import Offload, inline
from ctxfs.files.passthrough_calls import set_times
from ctxfs.files.passthrough_closed import ClosedRoots
from ctxfs.files.passthrough_data import FileData
from ctxfs.files.passthrough_descriptors import Descriptors
from ctxfs.files.passthrough_inodes import DISK_TAG, Inode, Place
from ctxfs.files.passthrough_listings import Listings
from ctxfs.files.passthrough_roots import Roots, check_home, check_same_place, check_writable
from ctxfs.files.passthrough_tree import DiskTree, leaf, through

_FLAGS = os.O_ACCMODE | os.O_TRUNC | os.O_SYNC | os.O_DSYNC | os.O_NOATIME
_KINDS = (stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK)
_ACL = b"system.posix_acl_"
_CAPABILITY = b"security.capability"


class DiskOperations:
    """Handlers for everything below the roots on the disk under ``base`` (spec 1.8).

    ``as_root``: new files are given to the caller; otherwise everything is the daemon's user's.
    ``invalidate(inode)`` drops the attributes the kernel has of an inode; called inside handlers.
    ``offload(call)`` runs a call that may wait for the disk where it holds up nobody.
    """

    def __init__(
        self, base: Path, *, as_root: bool, invalidate: Callable[[int], None], offload: Offload = inline
    ) -> None:
        self._tree = DiskTree(base)
        self._roots = Roots(self._tree)
        self._give = give_to_caller if as_root else set_mode
        self._invalidate = invalidate
        self._data = FileData(offload)
        self._descriptors = Descriptors()
        self._closed_files: dict[int, Place] = {}
        self.listings = Listings(self._tree, self._descriptors)
        self.closed_roots = ClosedRoots(self._tree, self._roots, offload)

    def close(self) -> None:
        """Gives up the descriptors of the tree; the mount must be gone."""
        self._tree.close()

    # Roots

    def root_inode(self, key: str) -> int:
        """The inode of a root by its path below ``base``, the same while the mount lives; ``FileNotFoundError``."""
        return self._roots.find(key).number

    def make_root(self, key: str, uid: int, gid: int, mode: int) -> int:
        """Makes a root (an existing one stays as it is) with parents 0700; -1 is the daemon's uid or gid."""
        return self._roots.make(key, uid, gid, mode).number

    def has_root(self, key: str) -> bool:
        """Whether the root is there: its owner may remove it, and make it again; a tree of others may lack it."""
        try:
            self._roots.find(key)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def root_is_empty(self, key: str) -> bool:
        """Whether nothing is in a root; ``FileNotFoundError``."""
        return self._roots.is_empty(key)

    def remove_root(self, key: str) -> None:
        """Removes an empty root, and what is empty above it, but no home; ``OSError(ENOTEMPTY)``."""
        self._roots.remove(key)

    def look_up_root(self, key: str) -> EntryAttributes:
        """A root that the kernel will remember; ``FileNotFoundError``."""
        root = self._roots.find(key)
        root.lookups += 1
        return entry_of(root, self._tree.stat(root))

    def list_root(self, key: str, name: bytes, offset: int, token: ReaddirToken) -> bool:
        """Lists a root in a directory that is not on the disk; False where it does not fit any more."""
        root = self._roots.find(key)
        if not pyfuse3.readdir_reply(token, name, entry_of(root, self._tree.stat(root)), offset):
            return False
        root.lookups += 1
        return True

    def change_root(self, key: str, uid: int, gid: int, mode: int) -> None:
        """Gives a root away."""
        root = self._roots.find(key)
        with self._tree.held(root) as fd:
            os.chown(through(fd), uid, gid)
            os.chmod(through(fd), mode)
        self._invalidate(root.number)

    # Names

    def _allowed(self, inode: int, ctx: RequestContext) -> Inode:
        """What is opened."""
        known = self._tree.table[inode]
        check_home(known, ctx.uid)
        return known

    def _changeable(self, inode: int, ctx: RequestContext) -> Inode:
        """A directory in which a name changes, or what is opened for writing."""
        known = self._allowed(inode, ctx)
        check_writable(known)
        return known

    def _writable(self, inode: int) -> Inode:
        """What is changed by itself; whether the caller may do that, the kernel has checked."""
        known = self._tree.table[inode]
        check_writable(known)
        return known

    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        return self._found(self._tree.table[parent_inode], leaf(name))

    def _found(self, parent: Inode, name: bytes) -> EntryAttributes:
        inode, attributes = self._tree.look_up(parent, name)
        inode.lookups += 1
        return entry_of(inode, attributes)

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for number, lookups in inode_list:
            if number in self._tree.table:
                self._tree.forget(self._tree.table[number], lookups)

    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        with self._tree.held(self._tree.table[inode]) as fd:
            return os.readlink(b"", dir_fd=fd)

    async def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        if stat.S_IFMT(mode) not in _KINDS:
            raise _error(errno.EPERM)
        parent = self._changeable(parent_inode, ctx)
        os.mknod(leaf(name), mode, dir_fd=self._tree.directory(parent))
        return self._made(parent, name, mode, ctx, os.unlink)

    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        parent = self._changeable(parent_inode, ctx)
        os.mkdir(leaf(name), mode, dir_fd=self._tree.directory(parent))
        return self._made(parent, name, mode, ctx, os.rmdir)

    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        parent = self._changeable(parent_inode, ctx)
        os.symlink(target, leaf(name), dir_fd=self._tree.directory(parent))
        return self._made(parent, name, stat.S_IFLNK, ctx, os.unlink)

    def _made(
        self, parent: Inode, name: bytes, mode: int, ctx: RequestContext, undo: Callable[..., None]
    ) -> EntryAttributes:
        directory = self._tree.directory(parent)
        try:
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=directory)
            try:
                self._give(fd, mode, ctx, os.fstat(directory))
            finally:
                os.close(fd)
            return self._found(parent, name)
        except OSError:
            undo(name, dir_fd=directory)
            raise

    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        parent = self._changeable(parent_inode, ctx)
        with self._tree.unlinking(parent, leaf(name)):
            os.unlink(name, dir_fd=self._tree.directory(parent))

    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        parent = self._changeable(parent_inode, ctx)
        with self._tree.unlinking(parent, leaf(name)):
            os.rmdir(name, dir_fd=self._tree.directory(parent))

    async def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        new_parent, known = self._changeable(new_parent_inode, ctx), self._writable(inode)
        check_same_place(known, new_parent)
        directory = self._tree.directory(new_parent)
        with self._tree.held(known) as fd:
            os.link(through(fd), leaf(new_name), dst_dir_fd=directory, follow_symlinks=True)
        return self._found(new_parent, new_name)

    async def rename(
        self,
        parent_inode: int,
        name: bytes,
        new_parent_inode: int,
        new_name: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        if flags not in (0, RENAME_NOREPLACE, RENAME_EXCHANGE):
            raise _error(errno.EINVAL)
        parent, new_parent = self._changeable(parent_inode, ctx), self._changeable(new_parent_inode, ctx)
        check_same_place(parent, new_parent)
        self._tree.rename(parent, leaf(name), new_parent, leaf(new_name), flags)

    # Attributes

    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        known = self._tree.table[inode]
        return entry_of(known, self._tree.stat(known))

    async def setattr(
        self,
        inode: int,
        attr: EntryAttributes,
        fields: SetattrFields,
        fh: int | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        known = self._writable(inode)
        with self._tree.held(known) as fd:
            path = through(fd)
            if fields.update_uid or fields.update_gid or not changes_others(fields):
                # Before the mode: a change of owner clears setuid and setgid. A change of nothing renews ctime.
                os.chown(path, attr.st_uid if fields.update_uid else -1, attr.st_gid if fields.update_gid else -1)
            if fields.update_mode:
                os.chmod(path, stat.S_IMODE(attr.st_mode))
            if fields.update_size:
                os.truncate(path if fh is None else _descriptor(fh), attr.st_size)
            if fields.update_atime or fields.update_mtime:
                set_times(
                    path,
                    attr.st_atime_ns if fields.update_atime else None,
                    attr.st_mtime_ns if fields.update_mtime else None,
                )
            return entry_of(known, os.fstat(fd))

    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        disk = os.fstatvfs(self._tree.directory(self._tree.base))
        answer = StatvfsData()
        for field in ("bsize", "frsize", "blocks", "bfree", "bavail", "files", "ffree", "favail", "namemax"):
            setattr(answer, f"f_{field}", getattr(disk, f"f_{field}"))
        return answer

    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        known = self._writable(inode)
        if name == _CAPABILITY:
            known.has_no_capability = False
        with self._tree.held(known) as fd:
            os.setxattr(through(fd), _attribute(name), value)

    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        known = self._tree.table[inode]
        if name == _CAPABILITY and known.has_no_capability:
            raise _error(errno.ENODATA)
        try:
            with self._tree.held(known) as fd:
                return os.getxattr(through(fd), _attribute(name))
        except OSError as error:
            if name == _CAPABILITY and error.errno == errno.ENODATA:
                known.has_no_capability = True
            raise

    async def listxattr(self, inode: int, ctx: RequestContext) -> list[bytes]:
        with self._tree.held(self._tree.table[inode]) as fd:
            names = map(os.fsencode, os.listxattr(through(fd)))
        hidden = (_ACL,) if ctx.uid == 0 else (_ACL, b"trusted.")
        return [name for name in names if not name.startswith(hidden)]

    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        with self._tree.held(self._writable(inode)) as fd:
            os.removexattr(through(fd), _attribute(name))

    # Open files

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        parent = self._changeable(parent_inode, ctx)
        self._descriptors.check(ctx.uid)
        new = flags & _FLAGS | os.O_CREAT | os.O_EXCL
        try:
            fd = os.open(leaf(name), new, stat.S_IMODE(mode), dir_fd=self._tree.directory(parent))
        except FileExistsError:
            # The kernel did not know of it and has not checked the caller's rights: it must look again.
            raise _error(errno.EEXIST if flags & os.O_EXCL else errno.ESTALE) from None
        try:
            entry = self._made(parent, name, mode, ctx, os.unlink)
        except OSError:
            os.close(fd)
            raise
        return self._opened(fd, parent, flags, ctx), entry

    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        changes = flags & (os.O_ACCMODE | os.O_TRUNC) != os.O_RDONLY
        known = self._changeable(inode, ctx) if changes else self._allowed(inode, ctx)
        if known.kind != stat.S_IFREG:
            raise _error(errno.EOPNOTSUPP)
        self._descriptors.check(ctx.uid)
        with self._tree.held(known) as held:
            if flags & os.O_TRUNC:
                self._drop_privileges(known, held, ctx)
            # No O_APPEND: the kernel sends the offset, and writes mapped pages back through any handle.
            fd = os.open(through(held), flags & _FLAGS)
        return self._opened(fd, known, flags, ctx)

    def _opened(self, fd: int, inode: Inode, flags: int, ctx: RequestContext) -> FileInfo:
        self._descriptors.add(fd, ctx.uid)
        place = next(inode.places()) if flags & os.O_ACCMODE != os.O_RDONLY else None
        if place is not None and place.is_closed:
            self._closed_files[fd] = place
        return FileInfo(fh=DISK_TAG | fd, keep_cache=True)

    def _drop_privileges(self, inode: Inode, held: int, ctx: RequestContext) -> None:
        mode = os.fstat(held).st_mode
        dropped = stat.S_ISUID | stat.S_ISGID if mode & stat.S_IXGRP else stat.S_ISUID
        if mode & dropped and ctx.uid != 0:
            os.chmod(through(held), stat.S_IMODE(mode & ~dropped))
            self._invalidate(inode.number)

    async def read(self, fh: int, off: int, size: int) -> bytes | memoryview:
        """A view is good until the next call of ``read``; pyfuse3 has copied it by then."""
        return await self._data.read(_descriptor(fh), off, size)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        place = self._closed_files.get(_descriptor(fh))
        if place is not None and place.is_read_only:
            raise _error(errno.EROFS)
        return await self._data.write(_descriptor(fh), off, buf)

    async def flush(self, fh: int) -> None:
        """Nothing is held back here."""

    async def release(self, fh: int) -> None:
        self._closed_files.pop(_descriptor(fh), None)
        self._descriptors.close(_descriptor(fh))

    async def fsync(self, fh: int, datasync: bool) -> None:
        await self._data.sync(_descriptor(fh), os.fdatasync if datasync else os.fsync)

    # Open directories

    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        return DISK_TAG | self.listings.open(self._allowed(inode, ctx), ctx.uid)

    async def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        self.listings.list(_descriptor(fh), start_id, token)

    async def releasedir(self, fh: int) -> None:
        self.listings.close(_descriptor(fh))

    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        await self.fsync(fh, datasync)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _descriptor(fh: int) -> int:
    return fh & ~DISK_TAG


def _attribute(name: bytes) -> bytes:
    if name.startswith(_ACL):
        raise _error(errno.EOPNOTSUPP)
    return name
