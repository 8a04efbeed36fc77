"""Moving through a tree with one open descriptor however deep it is, past no symlink and no mount (spec 6.5).

Trees belong to users who may change them meanwhile: whatever is not where it was a moment ago is ``TreeChanged``.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from backend.checkpoints.errors import InvalidPath
from backend.system_calls import RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV, open_resolving

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NOATIME
_BENEATH = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV
_MOVED = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE))


class TreeChanged(Exception):
    """Somebody changed the tree while it was read; the message is a path in it."""


class Cursor:
    """An open directory of a tree, ``names`` below its root."""

    def __init__(self, root: int) -> None:
        self.fd = os.dup(root)
        self.names: list[str] = []
        self._above: list[tuple[int, int]] = []

    def close(self) -> None:
        os.close(self.fd)

    def path(self, name: str) -> str:
        """Where an entry of this directory is below the root."""
        return "/".join([*self.names, name])

    def down(self, name: str) -> None:
        """Enters a directory of this one (``TreeChanged``, ``InvalidPath``: something is mounted there)."""
        try:
            below = open_resolving(self.fd, os.fsencode(name), _FLAGS, _BENEATH)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise InvalidPath(f"something is mounted inside: {self.path(name)}") from None
            if error.errno in _MOVED:
                raise TreeChanged(self.path(name)) from error
            raise
        self._above.append(_key(self.fd))
        self.names.append(name)
        self._move_to(below)

    def up(self) -> str:
        """Leaves this directory for the one that holds it; its name there (``TreeChanged``)."""
        above = os.open("..", _FLAGS | os.O_CLOEXEC, dir_fd=self.fd)
        moved = _key(above) != self._above.pop()
        self._move_to(above)
        name = self.names.pop()
        if moved:
            raise TreeChanged(self.path(name))
        return name

    def _move_to(self, fd: int) -> None:
        os.close(self.fd)
        self.fd = fd


def _key(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


@contextmanager
def cursor_at(root: int) -> Iterator[Cursor]:
    """A cursor that is closed afterwards."""
    cursor = Cursor(root)
    try:
        yield cursor
    finally:
        cursor.close()


class Entry(NamedTuple):
    """An entry of a tree: where it is below the root, its name, and its attributes."""

    path: str
    name: str
    stat: os.stat_result


def entries(cursor: Cursor) -> Iterator[Entry]:
    """What the cursor's directory holds, in the order of names (``TreeChanged``: one is gone again)."""
    for name in sorted(os.listdir(cursor.fd)):
        try:
            found = os.stat(name, dir_fd=cursor.fd, follow_symlinks=False)
        except FileNotFoundError as error:
            raise TreeChanged(cursor.path(name)) from error
        yield Entry(cursor.path(name), name, found)


def walk(root: int) -> Iterator[Entry]:
    """All that is below an open directory, a directory before what it holds (``TreeChanged``, ``InvalidPath``)."""
    with cursor_at(root) as cursor:
        level = list(entries(cursor))
        yield from level
        waiting = [_directories(level)]
        while (name := next_below(cursor, waiting)) is not None:
            cursor.down(name)
            level = list(entries(cursor))
            yield from level
            waiting.append(_directories(level))


def next_below(cursor: Cursor, waiting: list[list[str]]) -> str | None:
    """The next directory to enter, None at the end, of those that wait in each level from the first to the cursor's.

    Leaves the levels in which none waits any more (``TreeChanged``).
    """
    while waiting:
        if waiting[-1]:
            return waiting[-1].pop()
        waiting.pop()
        if waiting:
            cursor.up()
    return None


def _directories(level: list[Entry]) -> list[str]:
    return [entry.name for entry in level if stat.S_ISDIR(entry.stat.st_mode)]


def is_empty(directory: int) -> bool:
    """Whether an open directory holds nothing."""
    with os.scandir(directory) as found:
        return next(found, None) is None
