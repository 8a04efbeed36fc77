"""Removing a whole tree that its owner may still be changing (spec 6.5).

What chattr(1) protects is removed too: it was put aside as a whole, as a deleted subvolume is.
"""

import fcntl
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress

from backend.checkpoints.snapshots.walking import Cursor, cursor_at, entries

_FS_IOC_GETFLAGS, _FS_IOC_SETFLAGS = 0x80086601, 0x40086602
_FS_IMMUTABLE_FL, _FS_APPEND_FL = 0x10, 0x20
_WORD_BYTES = 4


def remove_below(root: int) -> None:
    """Removes all that an open directory holds (``OSError``, ``TreeChanged``: some of it is left)."""
    with cursor_at(root) as cursor:
        waiting = [_remove_level(cursor)]
        while waiting:
            if waiting[-1]:
                cursor.down(waiting[-1].pop())
                waiting.append(_remove_level(cursor))
                continue
            waiting.pop()
            if waiting:
                name = cursor.up()
                _remove(os.rmdir, name, cursor.fd, os.O_DIRECTORY)


def _remove_level(cursor: Cursor) -> list[str]:
    """Removes what is no directory; the names of the directories."""
    below = []
    for entry in entries(cursor):
        if stat.S_ISDIR(entry.stat.st_mode):
            below.append(entry.name)
        elif stat.S_ISREG(entry.stat.st_mode):
            _remove(os.unlink, entry.name, cursor.fd, os.O_NONBLOCK)
        else:
            os.unlink(entry.name, dir_fd=cursor.fd)
    return below


def _remove(remove: Callable[..., None], name: str, directory: int, flags: int) -> None:
    try:
        remove(name, dir_fd=directory)
    except PermissionError:
        _unprotect(directory)
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=directory)
        try:
            _unprotect(fd)
        finally:
            os.close(fd)
        remove(name, dir_fd=directory)


def _unprotect(fd: int) -> None:
    """Takes chattr's ``+i`` and ``+a`` from an open file; a file system without such flags has nothing to take."""
    with suppress(OSError):
        found = fcntl.ioctl(fd, _FS_IOC_GETFLAGS, bytes(_WORD_BYTES))
        kept = int.from_bytes(found, sys.byteorder) & ~(_FS_IMMUTABLE_FL | _FS_APPEND_FL)
        fcntl.ioctl(fd, _FS_IOC_SETFLAGS, kept.to_bytes(_WORD_BYTES, sys.byteorder))
