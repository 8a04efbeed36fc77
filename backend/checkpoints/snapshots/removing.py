"""Removing a whole tree that its owner may still be changing (spec 6.5).

What chattr(1) protects is removed too: it was put aside as a whole, as a deleted subvolume is.
"""

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress

from backend.checkpoints.snapshots.walking import Cursor, TreeChanged, cursor_at, entries

_FS_IOC_GETFLAGS, _FS_IOC_SETFLAGS = 0x80086601, 0x40086602
_FS_IMMUTABLE_FL, _FS_APPEND_FL = 0x10, 0x20
_PROTECTED = _FS_IMMUTABLE_FL | _FS_APPEND_FL
_WORD_BYTES = 4
_ATTEMPTS = 10


def remove_below(root: int) -> None:
    """Removes all that an open directory holds (``OSError``, ``TreeChanged``: some of it is left)."""
    for _ in range(_ATTEMPTS - 1):
        try:
            _remove_all(root)
        except TreeChanged:
            continue
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
        else:
            return
    _remove_all(root)


def _remove_all(root: int) -> None:
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
    """Removes what is no directory; the names of the directories. Who still is inside makes nothing new there."""
    _unprotect(cursor.fd)
    os.fchmod(cursor.fd, 0o700)
    os.fchown(cursor.fd, 0, 0)
    below = []
    for entry in entries(cursor):
        if stat.S_ISDIR(entry.stat.st_mode):
            below.append(entry.name)
        elif stat.S_ISREG(entry.stat.st_mode):
            _remove(os.unlink, entry.name, cursor.fd, os.O_NONBLOCK)
        else:
            with suppress(FileNotFoundError):
                os.unlink(entry.name, dir_fd=cursor.fd)
    return below


def _remove(remove: Callable[..., None], name: str, directory: int, flags: int) -> None:
    with suppress(FileNotFoundError):
        try:
            remove(name, dir_fd=directory)
        except PermissionError:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=directory)
            try:
                _unprotect(fd)
            finally:
                os.close(fd)
            remove(name, dir_fd=directory)


def _unprotect(fd: int) -> None:
    """Takes chattr's ``+i`` and ``+a`` from an open file; a file system without such flags has nothing to take."""
    with suppress(OSError):
        found = int.from_bytes(fcntl.ioctl(fd, _FS_IOC_GETFLAGS, bytes(_WORD_BYTES)), sys.byteorder)
        if found & _PROTECTED:
            fcntl.ioctl(fd, _FS_IOC_SETFLAGS, (found & ~_PROTECTED).to_bytes(_WORD_BYTES, sys.byteorder))
