"""System calls that ordinary directories alone need and ``os`` does not have (spec 1.8).

Thin: one function per call, arguments and errors as in its manual page. Every function raises ``OSError``; none
of them looks at what it is given, and none may be called on a path inside a mount of our own.
"""

import ctypes
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from backend.system_calls import (
    AT_FDCWD,
    RESOLVE_BENEATH,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    checked,
    open_resolving,
)

_libc = ctypes.CDLL(None, use_errno=True)


UTIME_OMIT = (1 << 30) - 2

_DIRENT = struct.Struct("=QqHB")
_DIRENT_BUFFER = 32768
_KIND_SHIFT = 12


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_TwoTimespecs = _Timespec * 2

_libc.utimensat.argtypes = (ctypes.c_int, ctypes.c_char_p, _TwoTimespecs, ctypes.c_int)
_libc.getdents64.restype = ctypes.c_ssize_t
_libc.getdents64.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)


def open_beneath(directory: int, path: bytes, flags: int) -> int:
    """openat2(2) that passes no symlink and never leaves ``directory``."""
    return open_resolving(directory, path, flags, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)


def set_times(path: str, atime_ns: int | None, mtime_ns: int | None) -> None:
    """utimensat(2): times in ns since 1970, None leaves one as it is."""
    times = _TwoTimespecs(_timespec(atime_ns), _timespec(mtime_ns))
    checked(_libc.utimensat(AT_FDCWD, os.fsencode(path), times, 0))


def _timespec(time_ns: int | None) -> _Timespec:
    return _Timespec(0, UTIME_OMIT) if time_ns is None else _Timespec(*divmod(time_ns, 1_000_000_000))


class DirectoryEntry(NamedTuple):
    """A name in a directory, its inode number and kind (``S_IFMT``), and the position after it, for ``lseek``."""

    name: bytes
    inode: int
    kind: int
    position: int


def read_entries(directory: int) -> list[DirectoryEntry]:
    """getdents64(2): the next entries of an open directory, ``.`` and ``..`` among them; none at its end."""
    buffer = ctypes.create_string_buffer(_DIRENT_BUFFER)
    size = checked(_libc.getdents64(directory, buffer, _DIRENT_BUFFER))
    return list(_parse_entries(buffer.raw[:size]))


def _parse_entries(data: bytes) -> Iterator[DirectoryEntry]:
    at = 0
    while at < len(data):
        inode, position, length, kind = _DIRENT.unpack_from(data, at)
        start = at + _DIRENT.size
        yield DirectoryEntry(data[start : data.index(b"\0", start)], inode, kind << _KIND_SHIFT, position)
        at += length
