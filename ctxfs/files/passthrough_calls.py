"""System calls that ordinary directories need and ``os`` does not have (spec 1.8).

Thin: one function per call, arguments and errors as in its manual page. Every function raises ``OSError``; none
of them looks at what it is given, and none may be called on a path inside a mount of our own.
"""

import ctypes
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)

_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_AGAIN_LIMIT = 1000
_AT_FDCWD = -100

UTIME_OMIT = (1 << 30) - 2
RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2

_DIRENT = struct.Struct("=QqHB")
_DIRENT_BUFFER = 32768
_KIND_SHIFT = 12


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_TwoTimespecs = _Timespec * 2

_libc.syscall.restype = ctypes.c_long
_libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_OpenHow), ctypes.c_size_t)
_libc.renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_libc.utimensat.argtypes = (ctypes.c_int, ctypes.c_char_p, _TwoTimespecs, ctypes.c_int)
_libc.getdents64.restype = ctypes.c_ssize_t
_libc.getdents64.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)


def _failure() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def open_beneath(directory: int, path: bytes, flags: int) -> int:
    """openat2(2) that passes no symlink and never leaves ``directory``."""
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    for _ in range(_AGAIN_LIMIT):
        fd: int = _libc.syscall(_SYS_OPENAT2, directory, path, ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        failure = _failure()
        if not isinstance(failure, BlockingIOError | InterruptedError):
            raise failure
    raise failure


def rename(directory: int, name: bytes, new_directory: int, new_name: bytes, flags: int) -> None:
    """renameat2(2)."""
    if _libc.renameat2(directory, name, new_directory, new_name, flags) != 0:
        raise _failure()


def set_times(path: str, atime_ns: int | None, mtime_ns: int | None) -> None:
    """utimensat(2): times in ns since 1970, None leaves one as it is."""
    times = _TwoTimespecs(_timespec(atime_ns), _timespec(mtime_ns))
    if _libc.utimensat(_AT_FDCWD, os.fsencode(path), times, 0) != 0:
        raise _failure()


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
    size = _libc.getdents64(directory, buffer, _DIRENT_BUFFER)
    if size < 0:
        raise _failure()
    return list(_parse_entries(buffer.raw[:size]))


def _parse_entries(data: bytes) -> Iterator[DirectoryEntry]:
    at = 0
    while at < len(data):
        inode, position, length, kind = _DIRENT.unpack_from(data, at)
        start = at + _DIRENT.size
        yield DirectoryEntry(data[start : data.index(b"\0", start)], inode, kind << _KIND_SHIFT, position)
        at += length
