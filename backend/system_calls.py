"""System calls that ``os`` does not have. Thin: one function a call, arguments and errors as in its manual page.

Every function raises ``OSError`` and none looks at what it is given. Constants have the kernel's names.
"""

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

AT_FDCWD = -100
RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
RESOLVE_IN_ROOT = 0x10

OPEN_TREE_CLONE = 1

_SYS_OPEN_TREE = 428
_SYS_OPENAT2 = 437
_AGAIN_LIMIT = 1000
_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_STATX_BYTES = 256
_STATX_BTIME_AT = 80
_SYNC_FILE_RANGE_WRITE_AND_WAIT = 7


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc.syscall.restype = ctypes.c_long
_libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_OpenHow), ctypes.c_size_t)
_open_tree = ctypes.CDLL(None, use_errno=True).syscall
_open_tree.restype = ctypes.c_long
_open_tree.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_libc.renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_libc.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def failure(path: str | None = None) -> OSError:
    """The error of the last call into libc."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)


def checked(result: int, path: str | None = None) -> int:
    """What a call into libc returned, if it did not fail (``OSError``)."""
    if result < 0:
        raise failure(path)
    return result


def open_resolving(directory: int, path: bytes, flags: int, resolve: int) -> int:
    """openat2(2), asked again while the kernel says EAGAIN."""
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    for _ in range(_AGAIN_LIMIT):
        fd: int = _libc.syscall(_SYS_OPENAT2, directory, path, ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        error = failure(os.fsdecode(path))
        if not isinstance(error, BlockingIOError | InterruptedError):
            raise error
    raise error


def open_tree(path: str | bytes, flags: int, directory: int = AT_FDCWD) -> int:
    """open_tree(2); releases the GIL while it looks the path up."""
    fd: int = _open_tree(_SYS_OPEN_TREE, directory, os.fsencode(path), flags | os.O_CLOEXEC)
    return checked(fd, os.fsdecode(path))


def change_owner(fd: int, uid: int, gid: int) -> None:
    """fchownat(2) of what is open, a symlink too."""
    checked(_libc.fchownat(fd, b"", uid, gid, _AT_EMPTY_PATH))


def rename(directory: int, name: bytes, new_directory: int, new_name: bytes, flags: int) -> None:
    """renameat2(2)."""
    checked(_libc.renameat2(directory, name, new_directory, new_name, flags), os.fsdecode(new_name))


def sync_file_system(fd: int) -> None:
    """syncfs(2)."""
    checked(_libc.syncfs(fd))


def write_out(fd: int) -> None:
    """sync_file_range(2) of a whole file: its dirty pages are written, so that the next store to a mapping faults."""
    checked(_libc.sync_file_range(fd, 0, 0, _SYNC_FILE_RANGE_WRITE_AND_WAIT))


def birth_ns(fd: int) -> int:
    """When a file was made, in ns since 1970, by statx(2); 0 where the file system does not say."""
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    checked(_libc.statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer))
    raw = buffer.raw
    if not int.from_bytes(raw[:4], "little") & _STATX_BTIME:
        return 0
    seconds = int.from_bytes(raw[_STATX_BTIME_AT : _STATX_BTIME_AT + 8], "little", signed=True)
    return seconds * 1_000_000_000 + int.from_bytes(raw[_STATX_BTIME_AT + 8 : _STATX_BTIME_AT + 12], "little")
