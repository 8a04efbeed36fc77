"""Handlers for names, attributes and directories of the tree: a kernel request → the table, and nothing else.

Runs on the FUSE thread and never blocks. A listing reuses one ``EntryAttributes``.
"""

import errno
import os
import stat
import time
from collections.abc import Sequence

import pyfuse3
from pyfuse3 import EntryAttributes, FUSEError, RequestContext, SetattrFields, StatvfsData

from backend.names import is_uid
from ctxfs import xattrs
from ctxfs.attributes import fill, mode_of, mtime_of, names_changed
from ctxfs.content import Content
from ctxfs.core import Core
from ctxfs.files.directories import Caller
from ctxfs.files.handles import Handle
from ctxfs.files.passthrough_inodes import DISK_TAG
from ctxfs.files.temporaries import Temporary
from ctxfs.inodes import HOMES, INTERNED, TEMPORARY, Kind, Node, inode_of, node_of
from ctxfs.kernel_cache import CONTEXT_FILES
from ctxfs.listings import Listing
from ctxfs.patterns import FOUND, SAME_ID
from ctxfs.privacy import check_admin, check_space
from ctxfs.renames import Renames
from ctxfs.tree import Entry, Tree

FIRST_CONTEXT_INODE = min(inode_of(Node(kind, 0)) for kind in CONTEXT_FILES)
NOW_NS = 2 * 10**9
_STATVFS = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail")


def text_of(name: bytes) -> str:
    """A name as text; other bytes than UTF-8 match nothing (spec 1.1)."""
    return name.decode("utf-8", "surrogateescape")


class NameOperations:
    """The part of a mount's handlers that is about names."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._tree = Tree(core)
        self._content = Content(core, self._tree)
        self._renames = Renames(core, self._tree)
        self._handles: dict[int, Handle] = {}
        self._directories: dict[int, Listing] = {}
        self._last_handle = 0

    # Names and attributes.

    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        directory, text = self._directory(parent_inode), text_of(name)
        root = self._tree.roots(directory).get(text) if directory.row.roots else None
        if root is not None:
            return self._core.disk.look_up_root(root)
        if directory.node.kind is HOMES and is_uid(text):
            await self._core.users.learn(int(text))
        entry = self._tree.lookup(directory, text, ctx.uid)
        if entry is not None:
            return self._known(entry)
        temporary = self._core.temporaries.find(parent_inode, ctx.uid, text)
        if temporary is None:
            raise FUSEError(errno.ENOENT)
        temporary.lookups += 1
        return temporary.attributes

    def _known(self, entry: Entry) -> EntryAttributes:
        """Attributes of an entry that the kernel will remember."""
        if entry.node.kind in INTERNED:
            self._core.subjects.interned.remember(entry.node.id)
        return fill(self._core, self._content, entry, EntryAttributes())

    def _directory(self, inode: int) -> Entry:
        entry = self._tree.entry(node_of(inode))
        if not entry.row.is_directory:
            raise FUSEError(errno.ENOTDIR)
        return entry

    def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for inode, count in inode_list:
            self._forget(node_of(inode), count)

    def _forget(self, node: Node, count: int) -> None:
        self._core.kernel.pages.forgotten(inode_of(node))
        if node.kind in INTERNED:
            if self._core.subjects.interned.forget(node.id, count):
                self._core.subjects.times.forget(node)
        elif node.kind is TEMPORARY:
            temporary = self._core.temporaries.get(node.id)
            temporary.lookups -= count
            if temporary.lookups <= 0 and temporary.target is not None:
                self._core.kernel.unalias(inode_of(node), inode_of(temporary.target))
                self._forget(temporary.target, 1)
            self._core.temporaries.settle(temporary)

    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        if inode >= FIRST_CONTEXT_INODE:
            await self._context_ready(inode)
        return self._attributes(inode)

    async def _context_ready(self, inode: int) -> None:
        """Looks at what is new for a derived file of a session, if that is what it is: it may take long."""
        node = node_of(inode)
        file = CONTEXT_FILES.get(node.kind)
        if file is not None:
            await self._core.contexts.ready(node.id, file)

    def _attributes(self, inode: int) -> EntryAttributes:
        target = self._content.target(inode)
        if isinstance(target, Temporary):
            return target.attributes
        entry = self._tree.entry(target)
        if not self._tree.present(entry):
            raise FUSEError(errno.ENOENT)
        attributes = fill(self._core, self._content, entry, EntryAttributes())
        attributes.st_ino = inode
        return attributes

    async def setattr(
        self, inode: int, attr: EntryAttributes, fields: SetattrFields, fh: int | None, ctx: RequestContext
    ) -> EntryAttributes:
        target = self._content.target(inode)
        if isinstance(target, Temporary):
            if fields.update_size:
                self._core.temporaries.resize(target, attr.st_size)
            return self._attributes(inode)
        entry = self._tree.entry(target)
        if fh is None:
            # Through a descriptor the rights are those of its opener.
            check_space(entry.access, ctx.uid)
        self._set_owner_and_mode(entry, attr, fields, ctx)
        self._set_times(entry, attr, fields)
        if fields.update_size:
            self._truncate(entry, attr.st_size, fh)
        return self._attributes(inode)

    def _set_owner_and_mode(
        self, entry: Entry, attr: EntryAttributes, fields: SetattrFields, ctx: RequestContext
    ) -> None:
        """Nothing but the present values, but for shared spaces, which are the admin's to give away."""
        mode = attr.st_mode & 0o7777 if fields.update_mode else mode_of(entry) & 0o7777
        uid = attr.st_uid if fields.update_uid else entry.access.uid
        gid = attr.st_gid if fields.update_gid else entry.access.gid
        if (mode, uid, gid) == (mode_of(entry) & 0o7777, entry.access.uid, entry.access.gid):
            return
        if entry.row.give is None:
            raise FUSEError(errno.EPERM)
        check_admin(self._core.mounter, ctx.uid)
        try:
            entry.row.give(self._core, entry.subject, uid, gid, mode)
        finally:
            # Whatever failed, a part of it may have been done.
            for node in (entry.node, *self._tree.known_below(entry.node)):
                self._core.kernel.attributes_changed(inode_of(node))

    def _set_times(self, entry: Entry, attr: EntryAttributes, fields: SetattrFields) -> None:
        """ "Now" is accepted without effect (touch); another time is refused."""
        if fields.update_mtime:
            present = mtime_of(self._core, entry)
            if attr.st_mtime_ns != present and abs(attr.st_mtime_ns - time.time_ns()) > NOW_NS:
                raise FUSEError(errno.EPERM)

    def _truncate(self, entry: Entry, size: int, fh: int | None) -> None:
        if fh is not None:
            self._handles[fh].truncate(size)
            return
        if entry.access.archived:
            raise FUSEError(errno.EROFS)
        if entry.row.open is None:
            raise FUSEError(errno.EACCES)
        if size == self._content.size(entry):
            return
        if entry.row.truncate is not None:
            entry.row.truncate(self._core, entry.node, size)
        elif size:
            raise FUSEError(errno.EINVAL)

    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        below = os.statvfs(self._core.store_dir)
        data = StatvfsData()
        for field in _STATVFS:
            setattr(data, field, getattr(below, field))
        data.f_namemax = 255
        return data

    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        raise FUSEError(errno.EINVAL)

    # Directories.

    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        check_space(self._directory(inode).access, ctx.uid)
        if node_of(inode).kind is HOMES:
            await self._learn_listed_homes(ctx.uid)
        self._directories[self._new_handle()] = Listing(self._tree, self._core.kernel, node_of(inode), ctx.uid)
        return self._last_handle

    async def _learn_listed_homes(self, uid: int) -> None:
        homes = self._tree.entry(Node(Kind.HOMES, 1))
        for _, name, _ in self._tree.children(homes, 0, uid):
            await self._core.users.learn(int(name))

    def _new_handle(self) -> int:
        self._last_handle += 1
        return self._last_handle

    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        listing, attributes = self._directories[fh], EntryAttributes()
        for offset, name, entry in listing.after(start_id):
            fill(self._core, self._content, entry, attributes)
            if not pyfuse3.readdir_reply(token, name.encode(), attributes, offset):
                return
            if entry.node.kind in INTERNED:
                self._core.subjects.interned.remember(entry.node.id)
        self._list_roots(self._tree.entry(listing.node), start_id, token)

    def _list_roots(self, directory: Entry, start: int, token: pyfuse3.ReaddirToken) -> None:
        """Ordinary directories come last."""
        for offset, (name, key) in enumerate(self._tree.roots(directory).items(), DISK_TAG):
            wanted = offset > start and self._core.disk.has_root(key)
            if wanted and not self._core.disk.list_root(key, name.encode(), offset, token):
                return

    async def releasedir(self, fh: int) -> None:
        del self._directories[fh]

    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        await self._core.commits.sync()

    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        directory, text = self._directory(parent_inode), text_of(name)
        self._check_change(directory, ctx)
        root = self._tree.roots(directory).get(text)
        if root is not None:
            return self._make_root(root, directory, mode)
        if self._tree.lookup(directory, text, ctx.uid) is not None:
            raise FUSEError(errno.EEXIST)
        patterns = [pattern for pattern in FOUND[directory.node.kind] if pattern.make is not None]
        for pattern in patterns:
            if pattern.make is not None and pattern.fits(text):
                number = pattern.make(self._core, directory.subject, text, Caller(ctx.uid, ctx.gid))
                names_changed(self._core, directory)
                return self._known(self._tree.entry(self._tree.node(pattern.kind, number)))
        raise FUSEError(errno.EINVAL if patterns else errno.EPERM)

    def _make_root(self, key: str, directory: Entry, mode: int) -> EntryAttributes:
        """An ordinary directory that its owner had removed."""
        if self._core.disk.has_root(key):
            raise FUSEError(errno.EEXIST)
        inherited = mode_of(directory) & stat.S_ISGID
        self._core.disk.make_root(key, directory.access.uid, directory.access.gid, mode & 0o7777 | inherited)
        names_changed(self._core, directory)
        return self._core.disk.look_up_root(key)

    def _check_change(self, directory: Entry, ctx: RequestContext) -> None:
        """Every change of names: whose space it is, and that it is not archived."""
        check_space(directory.access, ctx.uid)
        if directory.access.archived:
            raise FUSEError(errno.EROFS)

    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        directory, text = self._directory(parent_inode), text_of(name)
        root = self._tree.roots(directory).get(text)
        if root is not None:
            self._check_change(directory, ctx)
            self._core.disk.remove_root(root)
            names_changed(self._core, directory)
            return
        entry = self._changeable(directory, text, ctx)
        if not entry.row.is_directory:
            raise FUSEError(errno.ENOTDIR)
        self._remove(directory, entry, text, ctx)

    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        directory, text = self._directory(parent_inode), text_of(name)
        temporary = self._core.temporaries.find(parent_inode, ctx.uid, text)
        if temporary is not None:
            self._core.temporaries.unlink(temporary)
            return
        entry = self._changeable(directory, text, ctx)
        if entry.row.is_directory:
            raise FUSEError(errno.EISDIR)
        if entry.row.unlink is not None:
            entry.row.unlink(self._core, entry.node)
            names_changed(self._core, directory)
        else:
            self._remove(directory, entry, text, ctx)

    def _changeable(self, directory: Entry, name: str, ctx: RequestContext) -> Entry:
        self._check_change(directory, ctx)
        entry = self._tree.lookup(directory, name, ctx.uid)
        if entry is None:
            raise FUSEError(errno.ENOENT)
        return entry

    def _remove(self, directory: Entry, entry: Entry, name: str, ctx: RequestContext) -> None:
        for pattern in FOUND[directory.node.kind]:
            if pattern.kind is entry.node.kind and pattern.remove is not None:
                pattern.remove(self._core, directory.subject, name, Caller(ctx.uid, ctx.gid))
                names_changed(self._core, directory)
                for kind in SAME_ID[entry.node.kind]:
                    self._core.subjects.times.forget(Node(kind, entry.node.id))
                return
        raise FUSEError(errno.EPERM)

    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        old, new = self._directory(parent_inode_old), self._directory(parent_inode_new)
        self._check_change(old, ctx)
        self._check_change(new, ctx)
        await self._renames.rename(old, text_of(name_old), new, text_of(name_new), flags, ctx.uid)

    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        self._check_change(self._directory(parent_inode), ctx)
        raise FUSEError(errno.EPERM)

    async def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        directory, text = self._directory(parent_inode), text_of(name)
        self._check_change(directory, ctx)
        for pattern in FOUND[directory.node.kind]:
            if pattern.bind is not None and stat.S_ISSOCK(mode) and pattern.fits(text):
                number = pattern.bind(self._core, directory.subject, text, Caller(ctx.uid, ctx.gid))
                names_changed(self._core, directory)
                return self._known(self._tree.entry(Node(pattern.kind, number)))
        raise FUSEError(errno.EPERM)

    # Extended attributes.

    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        if inode >= FIRST_CONTEXT_INODE:
            await self._context_ready(inode)
        return xattrs.get(self._content, self._existing(inode), text_of(name))

    async def listxattr(self, inode: int, ctx: RequestContext) -> Sequence[bytes]:
        return xattrs.names(self._existing(inode))

    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        entry = self._existing(inode)
        check_space(entry.access, ctx.uid)
        await xattrs.command(self._core, entry, text_of(name), value, ctx.uid)

    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        raise FUSEError(errno.EPERM)

    def _existing(self, inode: int) -> Entry:
        target = self._content.target(inode)
        if isinstance(target, Temporary):
            raise FUSEError(errno.EOPNOTSUPP)
        return self._tree.entry(target)
