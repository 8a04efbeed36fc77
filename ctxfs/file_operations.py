"""Handlers for open files of the tree: they make a handle (``ctxfs.files``), which answers everything else."""

import errno
import os
import select
from collections.abc import Awaitable

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, RequestContext

from ctxfs.attributes import names_changed
from ctxfs.files.handles import Handle, Opening
from ctxfs.files.temporaries import Temporary, TemporaryHandle
from ctxfs.inodes import TEMPORARY, Kind, inode_of
from ctxfs.kernel_cache import CONTEXT_FILES
from ctxfs.name_operations import FIRST_CONTEXT_INODE, NameOperations, text_of
from ctxfs.privacy import check_space
from ctxfs.tree import Entry

ALWAYS_READY = select.POLLIN | select.POLLOUT


class TreeOperations(NameOperations):
    """All handlers for files of the table."""

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        directory, text = self._directory(parent_inode), text_of(name)
        self._check_change(directory, ctx)
        entry = self._tree.named(directory, text, ctx.uid)
        if entry is None:
            return self._create_temporary(directory, text, flags, ctx)
        if self._tree.present(entry):
            if flags & os.O_EXCL:
                raise FUSEError(errno.EEXIST)
            return self._open(entry, flags, ctx, inode_of(entry.node)), self._known(entry)
        if not entry.row.creatable:
            raise FUSEError(errno.EACCES)
        opened = self._open(entry, flags | os.O_RDWR, ctx, inode_of(entry.node))
        names_changed(self._core, directory)
        return opened, self._known(entry)

    def _create_temporary(
        self, directory: Entry, name: str, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        if directory.row.temporaries is None:
            raise FUSEError(errno.EACCES if directory.node.kind is Kind.BY_CWD else errno.EPERM)
        if not directory.row.temporaries(name):
            raise FUSEError(errno.EINVAL)
        parent = inode_of(directory.node)
        temporary = self._core.temporaries.find(parent, ctx.uid, name)
        if temporary is not None and flags & os.O_EXCL:
            raise FUSEError(errno.EEXIST)
        if temporary is None:
            temporary = self._core.temporaries.create(parent, ctx.uid, ctx.gid, name)
        temporary.lookups += 1
        return self._open_temporary(temporary, flags, ctx), temporary.attributes

    def _open_temporary(self, temporary: Temporary, flags: int, ctx: RequestContext) -> FileInfo:
        if ctx.uid not in (0, temporary.uid):
            raise FUSEError(errno.EACCES)
        if temporary.is_gone:
            raise FUSEError(errno.ESTALE)
        if flags & os.O_TRUNC:
            self._core.temporaries.resize(temporary, 0)
        inode = inode_of(temporary.node)
        opening = Opening(self._core, self._content, inode, temporary.node, ctx.uid, flags)
        return self._opened(TemporaryHandle(opening), direct=True)

    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        target = self._content.target(inode)
        if isinstance(target, Temporary):
            return self._open_temporary(target, flags, ctx)
        if inode >= FIRST_CONTEXT_INODE:
            await self._context_ready(inode)
        entry = self._tree.entry(target)
        if not self._tree.present(entry):
            # The kernel had a name that is gone: it looks again, and then makes the file if it was to.
            raise FUSEError(errno.ESTALE)
        return self._open(entry, flags, ctx, inode)

    def _open(self, entry: Entry, flags: int, ctx: RequestContext, inode: int) -> FileInfo:
        check_space(entry.access, ctx.uid)
        opening = Opening(self._core, self._content, inode, entry.node, ctx.uid, flags)
        if flags & os.O_ACCMODE == os.O_RDONLY and not flags & os.O_TRUNC:
            return self._opened(entry.row.reader(opening), direct=self._has_writer(entry))
        if entry.access.archived:
            raise FUSEError(errno.EROFS)
        if entry.row.open is None:
            raise FUSEError(errno.EACCES)
        handle = entry.row.open(opening)
        if flags & os.O_TRUNC:
            try:
                handle.truncate_at_open()
            except Exception:
                handle.release()
                raise
        return self._opened(handle, direct=True)

    def _has_writer(self, entry: Entry) -> bool:
        """Whether the kernel's cache is no good: its size may be that of what is being written.

        A read of a derived file takes long and locks its pages. Who hears of a new size meanwhile cannot drop the page
        that ended at the old one, and all would be shown zeros there.
        """
        if entry.node.kind in CONTEXT_FILES:
            return entry.node.id in self._core.contexts.writers
        if entry.node.kind is Kind.LIST:
            return self._core.kernel.is_unsteady(entry.node.id)
        return entry.node in self._core.pending

    def _opened(self, handle: Handle, *, direct: bool) -> FileInfo:
        number = self._new_handle()
        self._handles[number] = handle
        if handle.node.kind is not TEMPORARY:
            self._core.kernel.watch(inode_of(handle.node), handle.watcher)
        return FileInfo(fh=number, direct_io=direct, keep_cache=not direct)

    def read(self, fh: int, off: int, size: int) -> Awaitable[bytes]:
        return self._handles[fh].read(off, size)

    def write(self, fh: int, off: int, buf: bytes) -> Awaitable[int]:
        return self._handles[fh].write(off, buf)

    def flush(self, fh: int) -> Awaitable[None]:
        return self._handles[fh].flush()

    def fsync(self, fh: int, datasync: bool) -> Awaitable[None]:
        return self._handles[fh].fsync()

    async def release(self, fh: int) -> None:
        handle = self._handles.pop(fh)
        self._core.kernel.unwatch(inode_of(handle.node), handle.watcher)
        handle.release()
        self._content.closed(handle.inode)

    async def poll(self, inode: int, fh: int, poll_handle: pyfuse3.PollHandle | None, ctx: RequestContext) -> int:
        """Always readable and writable; ``POLLPRI`` when the file grew since this handle last asked (spec 1.10)."""
        handle = self._handles[fh]
        grew = handle.watcher.ask(poll_handle) and await handle.has_changed()
        return ALWAYS_READY | select.POLLPRI if grew else ALWAYS_READY
