"""Which directory it is: a path may lead to another one tomorrow (spec 6.5).

Nothing here follows a symlink, so that whoever owns a directory above cannot lead root elsewhere.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from backend.system_calls import AT_FDCWD, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, birth_ns, open_resolving

ABSENT = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP))
"""What looking for a directory fails with where there is none; anything else leaves it unknown."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Identity(NamedTuple):
    """A directory's device, inode and time of birth (ns since 1970, 0 where the file system does not say)."""

    device: int
    inode: int
    birth_ns: int

    def same(self, other: "Identity") -> bool:
        """Whether both are one directory. A device may have another number after a restart; then its birth decides."""
        if (self.inode, self.birth_ns) != (other.inode, other.birth_ns):
            return False
        return self.device == other.device or self.birth_ns != 0


def identity_of(fd: int) -> Identity:
    """The identity of an open directory."""
    found = os.fstat(fd)
    return Identity(found.st_dev, found.st_ino, birth_ns(fd))


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A directory, reached without a symlink anywhere (``OSError``: ENOENT, ENOTDIR, ELOOP)."""
    fd = open_resolving(AT_FDCWD, os.fsencode(path), _DIRECTORY, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_in(directory: int, name: str) -> Iterator[int]:
    """A directory in an open one (``OSError``: ENOENT, ENOTDIR, ELOOP)."""
    fd = os.open(name, _DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        yield fd
    finally:
        os.close(fd)


def is_found(identity: Identity | None, look: Callable[[], Identity]) -> bool:
    """Whether a look finds that directory (``OSError``: it cannot be told)."""
    try:
        return identity is not None and identity.same(look())
    except OSError as error:
        if error.errno not in ABSENT:
            raise
        return False


def stands(identity: Identity, path: Path) -> bool:
    """Whether that directory is at a path (``OSError``: it cannot be told)."""

    def look() -> Identity:
        with opened(path) as fd:
            return identity_of(fd)

    return is_found(identity, look)


def is_reachable(path: Path) -> bool:
    """Whether a directory is there: its disk may not be mounted (``OSError``: it cannot be told)."""
    try:
        with opened(path):
            return True
    except OSError as error:
        if error.errno not in ABSENT:
            raise
        return False
