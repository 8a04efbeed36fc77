"""What differs between two trees: type, content, link target; nothing else (spec 6.5). Sorted by path."""

import errno
import os
import stat
from collections.abc import Callable

from backend.checkpoints.snapshots.walking import Entry, walk
from backend.checkpoints.wire import ChangeType, DiffEntry

_CHUNK = 1 << 20
_DETAILS = {stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


def compare(old: int, new: int) -> list[DiffEntry]:
    """The differences between two open roots; what was renamed is deleted and added."""
    before, after = _all_below(old), _all_below(new)
    changes = []
    for path in sorted(before.keys() | after.keys()):
        change = _change(old, new, before.get(path), after.get(path))
        if change is not None:
            changes.append(DiffEntry(shown(path), *change))
    return changes


def shown(path: str) -> str:
    """A path as text: bytes that are no UTF-8 as ``\\xNN``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _all_below(root: int) -> dict[str, Entry]:
    return {entry.path: entry for entry in walk(root)}


def _change(old: int, new: int, before: Entry | None, after: Entry | None) -> tuple[ChangeType, str | None] | None:
    if before is None:
        return None if after is None else (ChangeType.Added, _detail(after))
    if after is None:
        return ChangeType.Deleted, "directory" if stat.S_ISDIR(before.stat.st_mode) else None
    if _equal(old, new, before, after):
        return None
    return ChangeType.Modified, _detail(after)


def _detail(entry: Entry) -> str | None:
    return _DETAILS.get(stat.S_IFMT(entry.stat.st_mode))


def _equal(old: int, new: int, before: Entry, after: Entry) -> bool:
    a, b = before.stat, after.stat
    if stat.S_IFMT(a.st_mode) != stat.S_IFMT(b.st_mode):
        return False
    if stat.S_ISDIR(a.st_mode) or (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino):
        return True
    if stat.S_ISREG(a.st_mode):
        return a.st_size == b.st_size and _same_content(old, new, before.path, a.st_mtime_ns == b.st_mtime_ns)
    if stat.S_ISLNK(a.st_mode):
        return os.readlink(before.path, dir_fd=old) == os.readlink(after.path, dir_fd=new)
    return a.st_rdev == b.st_rdev


def _same_content(old: int, new: int, path: str, else_by: bool) -> bool:
    """Whether two files of one size hold the same; ``else_by`` decides where the path is too long to be opened."""
    try:
        with open(path, "rb", opener=_opener(old)) as a, open(path, "rb", opener=_opener(new)) as b:
            while chunk := a.read(_CHUNK):
                if chunk != b.read(_CHUNK):
                    return False
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return else_by
        raise
    return True


def _opener(directory: int) -> Callable[[str, int], int]:
    return lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NOATIME, dir_fd=directory)
