"""The ioctls of btrfs that snapshots need. Thin: one function a call; names are those of an open directory's entries.

Every function raises ``OSError``. They go through ctypes, which lets other threads run: some wait for a commit.
"""

import ctypes
import os
import struct

from backend.system_calls import checked

_SUBVOL_CREATE, _SNAP_DESTROY, _SNAP_CREATE_V2 = 0x5000940E, 0x5000940F, 0x50009417
_INO_LOOKUP, _GET_SUBVOL_ROOTREF, _SEND = 0xD0009412, 0xD000943D, 0x40489426

_ARGUMENT_BYTES = 4096
_NAME_AT, _NAME_AT_V2 = 8, 56
_READ_ONLY = 2
_FIRST_OBJECT = 256
_COUNT_AT = 4088
_NO_FILE_DATA = 1
_SEND_ARGUMENTS = struct.Struct("=qQQQQI28x")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ioctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p)


def create_subvolume(directory: int, name: str) -> None:
    """An empty subvolume."""
    _call(directory, _SUBVOL_CREATE, _named(name, _NAME_AT))


def snapshot(source: int, directory: int, name: str, *, read_only: bool) -> None:
    """A snapshot of the subvolume whose root ``source`` is; on disk when this returns."""
    argument = _named(name, _NAME_AT_V2)
    struct.pack_into("=qQQ", argument, 0, source, 0, _READ_ONLY if read_only else 0)
    _call(directory, _SNAP_CREATE_V2, argument)


def destroy(directory: int, name: str) -> None:
    """Deletes a subvolume that has no other inside."""
    _call(directory, _SNAP_DESTROY, _named(name, _NAME_AT))


def subvolume_id(fd: int) -> int:
    """The id of the subvolume that a file is in; never used again for another."""
    argument = bytearray(_ARGUMENT_BYTES)
    struct.pack_into("=QQ", argument, 0, 0, _FIRST_OBJECT)
    found: int = struct.unpack_from("=Q", _call(fd, _INO_LOOKUP, argument))[0]
    return found


def has_subvolumes(fd: int) -> bool:
    """Whether there are other subvolumes inside the one whose root ``fd`` is."""
    return _call(fd, _GET_SUBVOL_ROOTREF, bytearray(_ARGUMENT_BYTES))[_COUNT_AT] > 0


def send(root: int, parent_id: int, target: int) -> None:
    """Writes what changed from one read-only snapshot to another into a pipe, as a stream without file contents."""
    _call(root, _SEND, bytearray(_SEND_ARGUMENTS.pack(target, 0, 0, parent_id, _NO_FILE_DATA, 0)))


def _named(name: str, at: int) -> bytearray:
    argument = bytearray(_ARGUMENT_BYTES)
    raw = os.fsencode(name)
    argument[at : at + len(raw)] = raw
    return argument


def _call(fd: int, request: int, argument: bytearray) -> bytes:
    buffer = ctypes.create_string_buffer(bytes(argument), len(argument))
    checked(_libc.ioctl(fd, request, buffer))
    return buffer.raw
