"""System calls for views and agents: mounts by descriptor (open_tree(2) and its kin), namespaces, prctl(2).

Thin: one function per call, arguments as in its manual page, ``OSError`` as from ``os``. Nothing here looks at what it
is given.
"""

import ctypes
import os

from backend.system_calls import AT_FDCWD, OPEN_TREE_CLONE, checked, open_tree

_libc = ctypes.CDLL(None, use_errno=True)

# Numbers that are the same on every architecture.
_SYS_MOVE_MOUNT, _SYS_FSOPEN, _SYS_FSCONFIG, _SYS_FSMOUNT = 429, 430, 431, 432
_SYS_CLOSE_RANGE, _SYS_MOUNT_SETATTR = 436, 442

_AT_EMPTY_PATH, AT_RECURSIVE = 0x1000, 0x8000
_MOVE_BOTH_EMPTY = 0x04 | 0x40
_FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE = 1, 6
_CLOEXEC = 1
_CLOSE_RANGE_CLOEXEC = 4

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_PRIVATE, MS_SLAVE = 1 << 18, 1 << 19
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC = 1, 2, 4, 8

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def unshare(flags: int) -> None:
    """unshare(2)."""
    checked(_libc.unshare(flags))


def clone_mount(path: bytes, flags: int, directory: int = AT_FDCWD) -> int:
    """open_tree(2): a copy of what is at ``path`` (empty: of ``directory`` itself), attached nowhere.

    ``flags``: ``AT_RECURSIVE``, or 0.
    """
    empty = 0 if path else _AT_EMPTY_PATH
    return open_tree(path, OPEN_TREE_CLONE | flags | empty, directory)


def new_tmpfs(mode: str) -> int:
    """A new tmpfs, attached nowhere; ``mode`` (octal) of its root."""
    context = checked(_libc.syscall(_SYS_FSOPEN, b"tmpfs", _CLOEXEC))
    try:
        checked(_libc.syscall(_SYS_FSCONFIG, context, _FSCONFIG_SET_STRING, b"mode", mode.encode(), 0))
        checked(_libc.syscall(_SYS_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0))
        return checked(_libc.syscall(_SYS_FSMOUNT, context, _CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV))
    finally:
        os.close(context)


def attach_mount(mount: int, target: int) -> None:
    """move_mount(2): attaches a mount on what the descriptor ``target`` is open on."""
    checked(_libc.syscall(_SYS_MOVE_MOUNT, mount, b"", target, b"", _MOVE_BOTH_EMPTY))


def set_mount(mount: int, attributes: int, flags: int = 0, *, propagation: int = 0) -> None:
    """mount_setattr(2) of the mount that a descriptor is the root of; ``flags``: ``AT_RECURSIVE``, or 0."""
    attr = _MountAttr(attributes, 0, propagation, 0)
    size = ctypes.sizeof(attr)
    checked(_libc.syscall(_SYS_MOUNT_SETATTR, mount, b"", _AT_EMPTY_PATH | flags, ctypes.byref(attr), size))


def detach_mount(path: str) -> None:
    """umount2(2) of what is mounted at a path, with all below it, though somebody uses it."""
    checked(_libc.umount2(os.fsencode(path), _MNT_DETACH | _UMOUNT_NOFOLLOW))


def signal_when_parent_dies(number: int) -> None:
    """The signal that this process gets when the thread that started it ends, whatever others do (prctl(2))."""
    checked(_libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0))


def become_subreaper() -> None:
    """Descendants whose parent ends become this process's children (prctl(2))."""
    checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def set_no_new_privileges() -> None:
    """No exec of this process gives rights that it has not (prctl(2))."""
    checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def close_others_on_exec(first: int) -> None:
    """close_range(2): descriptors from ``first`` on do not survive an exec."""
    checked(_libc.syscall(_SYS_CLOSE_RANGE, first, ctypes.c_uint(0xFFFFFFFF), _CLOSE_RANGE_CLOEXEC))
