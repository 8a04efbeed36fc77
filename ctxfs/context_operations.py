"""Handlers for names in ``context/``: derived files and the runtime's own, which lie on the disk, in one directory.

A name of a derived file is the table's, whether or not it is there; every other one is an ordinary file or directory
below the session's closed root (spec 1.7), which is made when the first of them is. What is below an ordinary directory
in it the kernel knows by inodes of the disk, and never asks here again. Runs on the FUSE thread and never blocks.
"""

import contextlib
import errno
from collections.abc import Iterator

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, RequestContext

from ctxfs.attributes import fill, fill_unread, mode_of
from ctxfs.content import Content
from ctxfs.core import Core
from ctxfs.file_operations import TreeOperations
from ctxfs.files.context import root_key
from ctxfs.files.passthrough_inodes import DISK_TAG
from ctxfs.files.passthrough_listings import DOTS
from ctxfs.inodes import CONTEXT, Kind, Node, inode_of, node_of
from ctxfs.kernel_cache import CONTEXT_FILES
from ctxfs.privacy import check_space
from ctxfs.tree import Entry, Tree

_DERIVED = {file.encode(): file for file in CONTEXT_FILES.values()}
_NOT_LISTED = DOTS | _DERIVED.keys()
# Offsets of derived files, which come last; the disk has its own, any 63 bits, and these are none that one counts to.
_OFFSETS = range(DISK_TAG, DISK_TAG + len(_DERIVED) + 1)
FIRST = inode_of(Node(CONTEXT, 0))


def is_context(number: int) -> bool:
    """Whether an inode is a ``context/``, or a handle an open one."""
    return number >> 48 == CONTEXT


class ContextOperations:
    """``tree`` has the handlers of what the table says."""

    def __init__(self, core: Core, tree: TreeOperations) -> None:
        self._core = core
        self._tree = tree
        self._names = Tree(core)
        self._content = Content(core, self._names)
        self._disk = core.disk
        self._listings: dict[int, tuple[Entry, int, int | None]] = {}
        self._last_handle = FIRST

    def _entry(self, inode: int) -> Entry:
        return self._names.entry(node_of(inode))

    @contextlib.contextmanager
    def _root(self, directory: Entry) -> Iterator[int]:
        """The inode of the closed root (``FileNotFoundError``)."""
        key = root_key(self._core, directory.subject.session)
        with self._disk.closed_roots.visited(key, is_read_only=directory.access.archived) as root:
            yield root

    def _check_change(self, inode: int, ctx: RequestContext) -> Entry:
        """The entry of a directory in which a name changes."""
        directory = self._entry(inode)
        check_space(directory.access, ctx.uid)
        if directory.access.archived:
            raise FUSEError(errno.EROFS)
        return directory

    @contextlib.contextmanager
    def _changed(self, inode: int, ctx: RequestContext) -> Iterator[int]:
        """The inode of the closed root, in which a name changes."""
        with self._root(self._check_change(inode, ctx)) as root:
            yield root
        self._core.kernel.attributes_changed(inode)

    def _grown(self, inode: int, ctx: RequestContext) -> contextlib.AbstractContextManager[int]:
        """As ``_changed``, for a new name: the root is made where it is missing."""
        directory = self._check_change(inode, ctx)
        access, key = directory.access, root_key(self._core, directory.subject.session)
        self._disk.closed_roots.make(key, access.uid, access.gid, mode_of(directory) & 0o7777)
        return self._changed(inode, ctx)

    async def _refuse_derived(self, inode: int, name: bytes) -> None:
        """A name that is the table's cannot be made."""
        if name in _DERIVED:
            await self._core.contexts.ready(node_of(inode).id, _DERIVED[name])
            found = self._names.lookup(self._entry(inode), name.decode(), 0)
            raise FUSEError(errno.EACCES if found is None else errno.EEXIST)

    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        if name in _DERIVED:
            await self._core.contexts.ready(node_of(parent_inode).id, _DERIVED[name])
            return await self._tree.lookup(parent_inode, name, ctx)
        with self._root(self._entry(parent_inode)) as root:
            return await self._disk.lookup(root, name, ctx)

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        if name in _DERIVED:
            await self._core.contexts.ready(node_of(parent_inode).id, _DERIVED[name])
            return await self._tree.create(parent_inode, name, mode, flags, ctx)
        with self._grown(parent_inode, ctx) as root:
            return await self._disk.create(root, name, mode, flags, ctx)

    async def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        await self._refuse_derived(parent_inode, name)
        with self._grown(parent_inode, ctx) as root:
            return await self._disk.mknod(root, name, mode, rdev, ctx)

    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        await self._refuse_derived(parent_inode, name)
        with self._grown(parent_inode, ctx) as root:
            return await self._disk.mkdir(root, name, mode, ctx)

    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        await self._refuse_derived(parent_inode, name)
        with self._grown(parent_inode, ctx) as root:
            return await self._disk.symlink(root, name, target, ctx)

    async def link(self, inode: int, new_parent: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        """Of a file of the same ``context/``."""
        if not inode & DISK_TAG:
            raise FUSEError(errno.EPERM)
        await self._refuse_derived(new_parent, new_name)
        with self._grown(new_parent, ctx) as root:
            return await self._disk.link(inode, root, new_name, ctx)

    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        if name in _DERIVED:
            await self._core.contexts.ready(node_of(parent_inode).id, _DERIVED[name])
            await self._tree.unlink(parent_inode, name, ctx)
            return
        with self._changed(parent_inode, ctx) as root:
            await self._disk.unlink(root, name, ctx)

    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        if name in _DERIVED:
            await self._core.contexts.ready(node_of(parent_inode).id, _DERIVED[name])
            await self._tree.rmdir(parent_inode, name, ctx)
            return
        with self._changed(parent_inode, ctx) as root:
            await self._disk.rmdir(root, name, ctx)

    async def rename(self, old: int, name: bytes, new: int, new_name: bytes, flags: int, ctx: RequestContext) -> None:
        """One of both is a ``context/``; the other one too, or an ordinary directory in it."""
        for directory in (old, new):
            if is_context(directory):
                self._check_change(directory, ctx)
        if is_context(old) and name in _DERIVED:
            raise FUSEError(errno.EPERM)
        if is_context(new) and new_name in _DERIVED:
            raise FUSEError(errno.EACCES)
        with self._on_disk(old, ctx) as source, self._on_disk(new, ctx) as target:
            await self._disk.rename(source, name, target, new_name, flags, ctx)

    def _on_disk(self, directory: int, ctx: RequestContext) -> contextlib.AbstractContextManager[int]:
        """The inode on the disk of a directory in a rename."""
        if directory & DISK_TAG:
            return contextlib.nullcontext(directory)
        if is_context(directory):
            return self._grown(directory, ctx)
        # mv would copy a session on EXDEV, out of its privacy (spec 1.4).
        raise FUSEError(errno.EPERM if node_of(directory).kind is Kind.SESSIONS else errno.EXDEV)

    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        directory = self._entry(inode)
        check_space(directory.access, ctx.uid)
        disk: int | None = None
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._root(directory) as root:
            disk = await self._disk.opendir(root, ctx)
        self._last_handle += 1
        self._listings[self._last_handle] = directory, ctx.uid, disk
        return self._last_handle

    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        directory, uid, disk = self._listings[fh]
        # First: what the kernel is told of a name must be true when it is answered.
        await self._core.contexts.known_ready(directory.node.id)
        start, attributes = 0, EntryAttributes()
        if start_id in _OFFSETS:
            start = start_id - _OFFSETS.start
        elif disk is not None and not self._disk.listings.list(disk & ~DISK_TAG, start_id, token, without=_NOT_LISTED):
            return
        for offset, name, entry in self._names.children(directory, start, uid):
            self._fill(entry, attributes)
            if not pyfuse3.readdir_reply(token, name.encode(), attributes, _OFFSETS.start + offset):
                return

    def _fill(self, entry: Entry, attributes: EntryAttributes) -> None:
        if self._core.contexts.knows(entry.node.id, CONTEXT_FILES[entry.node.kind]):
            fill(self._core, self._content, entry, attributes)
        else:
            fill_unread(entry, attributes)

    async def releasedir(self, fh: int) -> None:
        _, _, disk = self._listings.pop(fh)
        if disk is not None:
            await self._disk.releasedir(disk)

    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        _, _, disk = self._listings[fh]
        if disk is not None:
            await self._disk.fsyncdir(disk, datasync)
