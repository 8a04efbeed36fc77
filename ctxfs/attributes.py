"""``EntryAttributes`` of the files of the table; they never depend on the caller (spec 1.8)."""

import stat
from typing import TYPE_CHECKING

from pyfuse3 import EntryAttributes

from ctxfs.content import Content
from ctxfs.inodes import SHARED_SPACE, blocks, inode_of
from ctxfs.kernel_cache import TIMEOUT_S
from ctxfs.subjects import SocketSubject, SpaceSubject
from ctxfs.tree import Entry

if TYPE_CHECKING:
    from ctxfs.core import Core


def fill(core: "Core", content: Content, entry: Entry, attributes: EntryAttributes) -> EntryAttributes:
    """Writes the attributes of ``entry`` into ``attributes`` (listings reuse one object)."""
    row, access = entry.row, entry.access
    pending = row.exists is not None and entry.node in core.pending and not row.exists(core, entry.subject)
    size = 0 if pending or row.is_directory else content.size(entry)
    mtime = core.subjects.started_ns if pending else mtime_of(core, entry)
    inode = inode_of(entry.node)
    core.kernel.told(inode)
    shown = core.kernel.pages.size(inode, size)
    _fill(attributes, inode, mode_of(entry), access.uid, access.gid, shown, mtime)
    attributes.entry_timeout = attributes.attr_timeout = 0 if pending else TIMEOUT_S
    return attributes


def fill_unread(entry: Entry, attributes: EntryAttributes) -> EntryAttributes:
    """Of a derived file in a listing: name and kind for now; whoever wants size and time asks for them."""
    access, created = entry.access, entry.subject.session.created_mtime
    _fill(attributes, inode_of(entry.node), mode_of(entry), access.uid, access.gid, 0, created)
    attributes.entry_timeout, attributes.attr_timeout = TIMEOUT_S, 0
    return attributes


def mtime_of(core: "Core", entry: Entry) -> int:
    """In ns; of a directory, also when a name in it was last made or removed since it was mounted."""
    own = entry.row.mtime(core, entry.subject)
    return core.subjects.times.of(entry.node, own) if entry.row.is_directory else own


def names_changed(core: "Core", directory: Entry) -> None:
    """A name in a directory was made or removed."""
    core.kernel.names_changed(directory.node, directory.row.mtime(core, directory.subject))


def mode_of(entry: Entry) -> int:
    """Type and permission bits; a shared space's are the admin's, a socket's depend on whether it is one user's."""
    if entry.node.kind is SHARED_SPACE and isinstance(entry.subject, SpaceSubject):
        return stat.S_IFDIR | (entry.subject.mode or 0)
    if isinstance(entry.subject, SocketSubject):
        return stat.S_IFSOCK | entry.subject.socket.mode
    return entry.row.modes.of(entry.access)


def _fill(attributes: EntryAttributes, inode: int, mode: int, uid: int, gid: int, size: int, mtime: int) -> None:
    attributes.st_ino = inode
    attributes.st_mode = mode
    attributes.st_nlink = 2 if stat.S_ISDIR(mode) else 1
    attributes.st_uid = uid
    attributes.st_gid = gid
    attributes.st_size = size
    attributes.st_blocks = blocks(size)
    attributes.st_atime_ns = attributes.st_mtime_ns = attributes.st_ctime_ns = mtime
