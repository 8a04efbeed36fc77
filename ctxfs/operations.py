"""pyfuse3's handlers for one mount: each request goes to the tree, or to the ordinary directories on disk.

Every handler runs on the FUSE thread and never blocks; what it awaits are one-shot futures (group commit, fsync, a
user's group). Exceptions become errnos in ``ctxfs.boundary``, which wraps each handler.
"""

import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pyfuse3
from pyfuse3 import EntryAttributes, FUSEError, RequestContext, StatvfsData

from ctxfs.context_operations import ContextOperations, is_context
from ctxfs.core import Core
from ctxfs.file_operations import ALWAYS_READY, TreeOperations
from ctxfs.files.passthrough_inodes import DISK_TAG
from ctxfs.inodes import Kind, node_of

# Handlers whose first argument, an inode or a file handle, says where they belong.
_BY_FIRST_ARGUMENT = (
    "getattr", "setattr", "readlink", "open", "read", "write", "flush", "release", "fsync",
    "setxattr", "getxattr", "listxattr", "removexattr",
)  # fmt: skip
# Likewise, and those in which ``context/`` is a directory unlike others.
_OF_NAMES = (
    "lookup", "mknod", "mkdir", "unlink", "rmdir", "symlink", "create", "opendir", "readdir", "releasedir", "fsyncdir",
)  # fmt: skip


class Operations(pyfuse3.Operations):
    """The handlers of one mount."""

    supports_dot_lookup = False
    enable_writeback_cache = False
    enable_acl = False

    def __init__(self, core: Core) -> None:
        super().__init__()
        self._disk = core.disk
        self._tree = TreeOperations(core)
        self._context = ContextOperations(core, self._tree)
        for name in _BY_FIRST_ARGUMENT:
            setattr(self, name, _dispatched(getattr(self._tree, name), getattr(self._disk, name)))
        for name in _OF_NAMES:
            handlers = (getattr(part, name) for part in (self._tree, self._disk, self._context))
            setattr(self, name, _dispatched_by_place(*handlers))

    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        return await self._tree.statfs(ctx)

    async def poll(self, inode: int, fh: int, poll_handle: pyfuse3.PollHandle | None, ctx: RequestContext) -> int:
        if fh & DISK_TAG:
            return ALWAYS_READY
        return await self._tree.poll(inode, fh, poll_handle, ctx)

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        await self._disk.forget([pair for pair in inode_list if pair[0] & DISK_TAG])
        self._tree.forget([pair for pair in inode_list if not pair[0] & DISK_TAG])

    async def rename(self, old: int, name: bytes, new: int, new_name: bytes, flags: int, ctx: RequestContext) -> None:
        if old & new & DISK_TAG:
            await self._disk.rename(old, name, new, new_name, flags, ctx)
        elif is_context(old) or is_context(new):
            await self._context.rename(old, name, new, new_name, flags, ctx)
        elif (old | new) & DISK_TAG:
            # mv would copy a session on EXDEV, out of its privacy (spec 1.4).
            is_session = not old & DISK_TAG and node_of(old).kind is Kind.SESSIONS
            raise FUSEError(errno.EPERM if is_session else errno.EXDEV)
        else:
            await self._tree.rename(old, name, new, new_name, flags, ctx)

    async def link(self, inode: int, new_parent: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        if inode & new_parent & DISK_TAG:
            return await self._disk.link(inode, new_parent, new_name, ctx)
        if is_context(new_parent):
            return await self._context.link(inode, new_parent, new_name, ctx)
        raise FUSEError(errno.EXDEV if (inode | new_parent) & DISK_TAG else errno.EPERM)


Handler = Callable[..., Awaitable[Any]]


def _dispatched(tree: Handler, disk: Handler) -> Handler:
    def handler(*args: Any) -> Awaitable[Any]:
        return disk(*args) if args[0] & DISK_TAG else tree(*args)

    return handler


def _dispatched_by_place(tree: Handler, disk: Handler, context: Handler) -> Handler:
    def handler(*args: Any) -> Awaitable[Any]:
        if args[0] & DISK_TAG:
            return disk(*args)
        return context(*args) if is_context(args[0]) else tree(*args)

    return handler
