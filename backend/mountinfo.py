"""What is mounted: ``/proc/self/mountinfo`` read as the only truth (design, FUSE facts). Touches no mount."""

import os
import re
from pathlib import Path
from typing import NamedTuple

_ESCAPE = re.compile(rb"\\([0-3][0-7]{2})")


class Mount(NamedTuple):
    """One line of mountinfo; ``device`` is ``(major, minor)``, ``source`` a ctxfs mount's store directory."""

    mount_id: int
    device: tuple[int, int]
    mountpoint: str
    fstype: str
    source: str
    options: tuple[str, ...]

    @property
    def owner_uid(self) -> int | None:
        """The ``user_id`` of a FUSE mount: who may unmount and abort it."""
        for option in self.options:
            if option.startswith("user_id="):
                return int(option.removeprefix("user_id="))
        return None


def parse_mountinfo(content: bytes) -> list[Mount]:
    """The mounts of a mountinfo file, in its order (later ones cover earlier ones at the same place).

    Any user may choose names for mounts: only the kernel's own newlines end a line, and a line that nobody can read
    hides no other.
    """
    return [mount for line in content.split(b"\n") if (mount := _parse_line(line)) is not None]


def _parse_line(line: bytes) -> Mount | None:
    before, _, after = line.partition(b" - ")
    try:
        mount_id, _, device, _, mountpoint, options = before.split(b" ")[:6]
        fstype, source, super_options = after.split(b" ", 2)
        major, minor = map(int, device.split(b":"))
        return Mount(
            int(mount_id),
            (major, minor),
            _unescape(mountpoint),
            os.fsdecode(fstype),
            _unescape(source),
            tuple(os.fsdecode(options + b"," + super_options).split(",")),
        )
    except ValueError:
        return None


def _unescape(name: bytes) -> str:
    """mountinfo writes space, tab, newline, backslash and ``#`` as octal."""
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes((int(match[1], 8),)), name))


def mounts() -> list[Mount]:
    """All mounts of this process's mount namespace."""
    return parse_mountinfo(Path("/proc/self/mountinfo").read_bytes())


def mount_at(mountpoint: str) -> Mount | None:
    """The mount that is visible at exactly this path, of whatever kind."""
    return next((mount for mount in reversed(mounts()) if mount.mountpoint == mountpoint), None)
