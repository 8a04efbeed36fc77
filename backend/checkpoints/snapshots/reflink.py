"""Snapshots whose files share their blocks with the live ones until either changes (XFS, btrfs, bcachefs; spec 6.5)."""

import errno
import fcntl
import os
import tempfile
from pathlib import Path

_FICLONE = 0x40049409
UNSUPPORTED = frozenset((errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS))
"""What ``clone_data`` fails with where the file systems cannot share blocks."""


def clone_data(source: int, target: int, _size: int) -> None:
    """Makes a new file share all blocks of another (``OSError``)."""
    fcntl.ioctl(target, _FICLONE, source)


def can_clone(directory: Path, store: Path) -> bool:
    """Whether files below ``directory`` can be cloned into ``store`` (``OSError``)."""
    if os.stat(directory).st_dev != os.stat(store).st_dev:
        return False
    with tempfile.TemporaryFile(dir=store) as one, tempfile.TemporaryFile(dir=store) as other:
        one.write(b"x")
        one.flush()
        try:
            clone_data(one.fileno(), other.fileno(), 1)
        except OSError as error:
            if error.errno in UNSUPPORTED:
                return False
            raise
    return True
