"""Takes a copy of another process's /dev/fuse, as a child of a daemon that inherited it would have one."""

import ctypes
import os
from pathlib import Path

_PIDFD_GETFD = 438


def steal_fuse_descriptor(pid: int) -> int:
    """A descriptor of this process for the FUSE connection that ``pid`` serves; keeps it alive until it is closed."""
    number = next(int(link.name) for link in Path(f"/proc/{pid}/fd").iterdir() if _target(link) == "/dev/fuse")
    process = os.pidfd_open(pid)
    try:
        taken = int(ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, number, 0))
    finally:
        os.close(process)
    assert taken >= 0, os.strerror(ctypes.get_errno())
    return taken


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:  # closed meanwhile
        return ""
