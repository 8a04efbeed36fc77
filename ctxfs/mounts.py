"""What is mounted: ``/proc/self/mountinfo`` read as the only truth (spec 4.6, design FUSE facts).

Nothing here touches a mount: a look at a stopped or dead one can hang for ever, so whatever has to goes through
``ctxfs.probe`` (a child with a time limit). No FUSE session, no sockets, no argv.
"""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from backend.mountinfo import Mount, mount_at, mounts, parse_mountinfo
from backend.system_calls import AT_FDCWD, checked

__all__ = [
    "FSTYPE",
    "READ_AHEAD_KB",
    "Holder",
    "Mount",
    "command_of",
    "ctxfs_mounts",
    "device_of",
    "holders",
    "is_mounted",
    "mount_at",
    "mounts",
    "parse_mountinfo",
    "set_read_ahead",
]

FSTYPE = "fuse.ctxfs"
READ_AHEAD_KB = 1024

_LIBC = ctypes.CDLL(None, use_errno=True)
_AT_NO_AUTOMOUNT = 0x800
_AT_STATX_DONT_SYNC = 0x4000
_STATX_BYTES = 256
_STATX_DEV = 136


class Holder(NamedTuple):
    """A process that keeps a mount busy; ``how``: cwd, root, ``fd N`` or map."""

    pid: int
    command: str
    how: str


def is_mounted(mount: Mount) -> bool:
    """Whether this very mount is still there, maybe moved. The kernel gives ids and devices of a gone one to others."""
    return any(_identity(other) == _identity(mount) for other in mounts())


def _identity(mount: Mount) -> tuple[object, ...]:
    return mount.mount_id, mount.device, mount.fstype, mount.source


def ctxfs_mounts() -> list[Mount]:
    """Every ctxfs mount once, bind mounts of it left out."""
    found: dict[tuple[int, int], Mount] = {}
    for mount in mounts():
        if mount.fstype == FSTYPE:
            found.setdefault(mount.device, mount)
    return list(found.values())


def set_read_ahead(device: tuple[int, int], kilobytes: int = READ_AHEAD_KB) -> None:
    """Sets the read-ahead of a mount's backing device; root only (``OSError``)."""
    Path(f"/sys/class/bdi/{device[0]}:{device[1]}/read_ahead_kb").write_text(f"{kilobytes}\n", encoding="ascii")


def device_of(path: str) -> tuple[int, int]:
    """The device of what ``path`` leads to; for a magic link of ``/proc`` without a request to its file system.

    statx with an empty mask and DONT_SYNC is answered from the inode alone, by FUSE too (``OSError``).
    """
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    flags = _AT_NO_AUTOMOUNT | _AT_STATX_DONT_SYNC
    checked(_LIBC.statx(AT_FDCWD, os.fsencode(path), flags, 0, buffer), path)
    major, minor = (int.from_bytes(buffer.raw[at : at + 4], "little") for at in (_STATX_DEV, _STATX_DEV + 4))
    return major, minor


def holders(device: tuple[int, int]) -> list[Holder]:
    """The processes that use a file of that device, as far as the caller may see them."""
    return [holder for entry in os.scandir("/proc") if entry.name.isdigit() for holder in _uses(entry.name, device)]


def _uses(pid: str, device: tuple[int, int]) -> Iterator[Holder]:
    command = command_of(int(pid))
    for how, link in _links(pid):
        try:
            if device_of(link) == device:
                yield Holder(int(pid), command, how)
        except OSError:
            continue
    if _maps(pid, device):
        yield Holder(int(pid), command, "map")


def _links(pid: str) -> Iterator[tuple[str, str]]:
    yield "cwd", f"/proc/{pid}/cwd"
    yield "root", f"/proc/{pid}/root"
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    yield from ((f"fd {number}", f"/proc/{pid}/fd/{number}") for number in numbers)


def _maps(pid: str, device: tuple[int, int]) -> bool:
    wanted = b"%02x:%02x" % device
    try:
        content = Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False
    return any(line.split(b" ", 4)[3:4] == [wanted] for line in content.split(b"\n"))


def command_of(pid: int) -> str:
    """The process's name, ``?`` if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "?"
