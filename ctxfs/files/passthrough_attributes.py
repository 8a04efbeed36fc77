"""Attributes of ordinary files: what the kernel is told, and what a new file gets (spec 1.8).

Used by the FUSE thread only.
"""

import os
import stat

from pyfuse3 import EntryAttributes, RequestContext, SetattrFields

from ctxfs.files.passthrough_inodes import Inode
from ctxfs.files.passthrough_tree import through

TIMEOUT = 3600.0


def entry_of(inode: Inode, attributes: os.stat_result) -> EntryAttributes:
    entry = EntryAttributes()
    fill_entry(entry, inode, attributes)
    return entry


def fill_entry(entry: EntryAttributes, inode: Inode, attributes: os.stat_result) -> None:
    entry.st_ino = inode.number
    entry.entry_timeout = entry.attr_timeout = TIMEOUT
    entry.st_mode = attributes.st_mode
    entry.st_nlink = attributes.st_nlink
    entry.st_uid = attributes.st_uid
    entry.st_gid = attributes.st_gid
    entry.st_rdev = attributes.st_rdev
    entry.st_size = attributes.st_size
    entry.st_blksize = attributes.st_blksize
    entry.st_blocks = attributes.st_blocks
    entry.st_atime_ns = attributes.st_atime_ns
    entry.st_mtime_ns = attributes.st_mtime_ns
    entry.st_ctime_ns = attributes.st_ctime_ns


def give_to_caller(fd: int, mode: int, ctx: RequestContext, directory: os.stat_result) -> None:
    """Makes a new file the caller's."""
    gid = directory.st_gid if directory.st_mode & stat.S_ISGID else ctx.gid
    os.chown(through(fd), ctx.uid, gid)
    set_mode(fd, mode, ctx, directory)


def set_mode(fd: int, mode: int, ctx: RequestContext, directory: os.stat_result) -> None:  # noqa: ARG001
    """Gives a new file its mode, whatever the daemon's umask and the change of owner made of it."""
    inherited = directory.st_mode & stat.S_ISGID if stat.S_ISDIR(mode) else 0
    wanted = stat.S_IMODE(mode) | inherited
    if not stat.S_ISLNK(mode) and stat.S_IMODE(os.fstat(fd).st_mode) != wanted:
        os.chmod(through(fd), wanted)


def changes_others(fields: SetattrFields) -> bool:
    """Whether a setattr is about more than owner and group."""
    return fields.update_mode or fields.update_size or fields.update_atime or fields.update_mtime
