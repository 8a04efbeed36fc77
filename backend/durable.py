"""Small files that survive a power cut whole: written beside, synced, renamed, the directory synced (spec 6.6)."""

import errno
import os
from contextlib import suppress
from pathlib import Path

DISK_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
"""What a write fails with for want of space."""

_TEMPORARY = ".tmp"


def write_durably(path: Path, data: bytes) -> None:
    """Replaces a file, 0600; afterwards it is on disk (``OSError``: it is as it was)."""
    temporary = path.with_name(path.name + _TEMPORARY)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(temporary, "wb", opener=lambda name, _: os.open(name, flags, 0o600)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Returns when the directory's entries are on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_private(path: Path) -> None:
    """Makes a directory 0700, and those above it that are missing; it is on disk afterwards."""
    if path.is_dir():
        return
    if not path.parent.is_dir():
        make_private(path.parent)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    sync_directory(path.parent)
