"""Copying a whole tree: content and holes, owners, modes, times, links, extended attributes, names (spec 6.5).

A file that changes while it is copied is copied once more, then ``TreeChanged``. Files that have not changed since the
snapshot before (same inode, size, mtime and ctime) are hard links to that snapshot's. That is sound because a store to
a page that was written out marks the inode, because every change of data or attributes moves ctime, and because a
ctime too young to be told from the next change is not remembered.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from backend.checkpoints.snapshots.attributes import copy_attributes, copy_attributes_of
from backend.checkpoints.snapshots.walking import Cursor, Entry, TreeChanged, entries
from backend.system_calls import write_out

# The kernel's clock for files may stand still that long.
CLOCK_GRAIN_NS = 20_000_000

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOATIME | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ATTEMPTS = 2
# Then the file is copied: its old copy is gone, has too many links, is elsewhere, or its path is too long.
_NOT_LINKED = frozenset((errno.ENOENT, errno.EMLINK, errno.EXDEV, errno.ENAMETOOLONG, errno.EPERM))

CopyData = Callable[[int, int, int], None]


class Stamp(NamedTuple):
    """What moves when a file changes."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class Previous(NamedTuple):
    """A snapshot taken before: its open root, and the stamps that the live files had then, by path."""

    root: int
    stamps: Mapping[bytes, Stamp]


NOTHING_BEFORE = Previous(-1, {})


def stamp_of(found: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return Stamp(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class TreeCopy:
    """One copy of what is below a root; ``stamps`` afterwards has those of the files, by path."""

    def __init__(self, source: int, target: int, copy_data: CopyData, previous: Previous = NOTHING_BEFORE) -> None:
        """From one open directory to another, which is empty and in nobody else's reach."""
        self._root = target
        self._source = Cursor(source)
        self._target = Cursor(target)
        self._copy_data = copy_data
        self._previous = previous
        self._linked: dict[tuple[int, int], str] = {}
        self.stamps: dict[bytes, Stamp] = {}

    def run(self) -> None:
        """Copies all but the root's own attributes (``TreeChanged``, ``InvalidPath``: a mount, ``OSError``)."""
        try:
            self._copy()
        finally:
            self._source.close()
            self._target.close()

    def _copy(self) -> None:
        found = [os.fstat(self._source.fd)]
        waiting = [self._copy_level()]
        while waiting:
            if not waiting[-1]:
                waiting.pop()
                before = found.pop()
                self._require_unchanged(before)
                if waiting:
                    self._leave(before)
                continue
            name = waiting[-1].pop()
            self._source.down(name)
            self._target.down(name)
            found.append(os.fstat(self._source.fd))
            waiting.append(self._copy_level())

    def _copy_level(self) -> list[str]:
        """Copies what this directory holds; the directories in it are only made, and returned."""
        below = []
        for entry in entries(self._source):
            if stat.S_ISDIR(entry.stat.st_mode):
                os.mkdir(entry.name, 0o700, dir_fd=self._target.fd)
                below.append(entry.name)
            elif not self._link_within(entry):
                self._copy_entry(entry)
        return below

    def _require_unchanged(self, found: os.stat_result) -> None:
        now = os.fstat(self._source.fd)
        if (now.st_mtime_ns, now.st_ctime_ns) != (found.st_mtime_ns, found.st_ctime_ns):
            raise TreeChanged("/".join(self._source.names) or ".")

    def _leave(self, found: os.stat_result) -> None:
        copy_attributes(self._source.fd, self._target.fd, found)
        self._source.up()
        self._target.up()

    def _link_within(self, entry: Entry) -> bool:
        """Makes another name of a file that the tree already has; whether it was one."""
        if entry.stat.st_nlink == 1:
            return False
        key = entry.stat.st_dev, entry.stat.st_ino
        first = self._linked.setdefault(key, entry.path)
        if first == entry.path:
            return False
        self._link(self._root, first, entry.name)
        return True

    def _link(self, root: int, path: str, name: str) -> None:
        os.link(path, name, src_dir_fd=root, dst_dir_fd=self._target.fd, follow_symlinks=False)

    def _copy_entry(self, entry: Entry) -> None:
        if stat.S_ISREG(entry.stat.st_mode):
            self._copy_or_link_file(entry)
            return
        try:
            self._copy_special(entry)
        except OSError as error:
            if _has_changed(entry, self._source.fd):
                raise TreeChanged(entry.path) from error
            raise

    def _copy_special(self, entry: Entry) -> None:
        mode, target = entry.stat.st_mode, self._target.fd
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(entry.name, dir_fd=self._source.fd), entry.name, dir_fd=target)
        else:
            os.mknod(entry.name, mode, entry.stat.st_rdev, dir_fd=target)
        copy_attributes_of(entry.name, self._source.fd, target, entry.stat)

    def _copy_or_link_file(self, entry: Entry) -> None:
        path, stamp = os.fsencode(entry.path), stamp_of(entry.stat)
        if self._previous.stamps.get(path) == stamp and self._link_previous(entry):
            self.stamps[path] = stamp
        elif not any(self._copy_file(entry, path) for _ in range(_ATTEMPTS)):
            raise TreeChanged(entry.path)

    def _link_previous(self, entry: Entry) -> bool:
        try:
            self._link(self._previous.root, entry.path, entry.name)
        except OSError as error:
            if error.errno in _NOT_LINKED:
                return False
            raise
        return True

    def _copy_file(self, entry: Entry, path: bytes) -> bool:
        """Whether a file was copied; else it has changed meanwhile, and there is no copy."""
        began_ns = time.time_ns()
        with _opened(entry.name, _READ, self._source.fd, entry.path) as source:
            found = os.fstat(source)
            if not stat.S_ISREG(found.st_mode):
                raise TreeChanged(entry.path)
            write_out(source)
            with _opened(entry.name, _CREATE, self._target.fd, entry.path) as target:
                self._copy_data(source, target, found.st_size)
                copy_attributes(source, target, found)
                if stamp_of(os.fstat(source)) == stamp_of(found):
                    self._remember(path, stamp_of(found), target, began_ns)
                    return True
        os.unlink(entry.name, dir_fd=self._target.fd)
        return False

    def _remember(self, path: bytes, stamp: Stamp, target: int, began_ns: int) -> None:
        if stamp.ctime_ns < began_ns - CLOCK_GRAIN_NS:
            self.stamps[path] = stamp


def _has_changed(entry: Entry, directory: int) -> bool:
    try:
        now = os.stat(entry.name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return True
    return stamp_of(now) != stamp_of(entry.stat)


class TreeRestoration(TreeCopy):
    """A copy of a snapshot that becomes the live tree: ``stamps`` are those of the new files.

    Nobody reaches those before they are put in place; they are all old enough ``CLOCK_GRAIN_NS`` after the copy.
    """

    def _remember(self, path: bytes, stamp: Stamp, target: int, began_ns: int) -> None:
        self.stamps[path] = stamp_of(os.fstat(target))


class _opened:
    """``os.open`` for ``with``; a file that is gone or is another kind by now is ``TreeChanged``."""

    def __init__(self, name: str, flags: int, directory: int, path: str) -> None:
        try:
            self._fd = os.open(name, flags, 0o600, dir_fd=directory)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
                raise TreeChanged(path) from error
            raise

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
