"""Giving one file the owner, mode, extended attributes and times of another (spec 6.5)."""

import os
import stat
from os import stat_result


def copy_attributes(source: int, target: int, found: stat_result) -> None:
    """Of an open file or directory to another: ``found`` is what the source had when it was read."""
    os.fchown(target, found.st_uid, found.st_gid)
    os.fchmod(target, found.st_mode & 0o7777)
    _copy_xattrs(source, target)
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def copy_attributes_of(name: str, source: int, target: int, found: stat_result) -> None:
    """Of what is not to be opened (a symlink, a device, a FIFO) between two open directories."""
    os.chown(name, found.st_uid, found.st_gid, dir_fd=target, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        os.chmod(name, found.st_mode & 0o7777, dir_fd=target)
    _copy_xattrs(f"/proc/self/fd/{source}/{name}", f"/proc/self/fd/{target}/{name}")
    os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=target, follow_symlinks=False)


def _copy_xattrs(source: int | str, target: int | str) -> None:
    """After the owner is set, for that drops capabilities; ACLs are extended attributes too."""
    follow = isinstance(source, int)
    for name in os.listxattr(source, follow_symlinks=follow):
        value = os.getxattr(source, name, follow_symlinks=follow)
        os.setxattr(target, name, value, follow_symlinks=follow)


def drop_xattrs(target: int) -> None:
    """Takes from a new directory what it inherited, so that what is made in it inherits nothing."""
    for name in os.listxattr(target):
        os.removexattr(target, name)
