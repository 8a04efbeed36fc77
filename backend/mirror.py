"""Copies a tree of files as it is: contents with their holes, owners, modes, times, extended attributes, links, FIFOs.

The source may change meanwhile: what goes away is left out, and no link that somebody plants leads elsewhere, as names
are looked up below open directories only. A second ``copy`` makes good what has changed since the first: afterwards the
target is the source of one moment if nothing changed during that pass. The target is the caller's alone.

Raises ``OSError``, with the path where one file is to blame. Owners are copied as far as the caller may give files
away.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import NamedTuple

CHUNK = 8 << 20
"""So many bytes are copied between two calls of ``proceed``."""
_SETTLED_NS = 1_000_000_000
"""A file that changed in the second before it was copied may have changed again within one tick of the clock."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# What is kept in these says who may read a file or is the user's own; others may be the machine's.
_MUST_KEEP = ("user.", "system.posix_acl_")


class _Stamp(NamedTuple):
    """What a file is as long as it does not change."""

    device: int
    inode: int
    kind: int
    size: int
    mtime_ns: int
    ctime_ns: int


class _Place(NamedTuple):
    """A directory that is being copied: its path below the source, and both sides of it, open."""

    path: str
    source: int
    target: int


class Mirror:
    """Of the directory ``source``, in the directory ``target``, which is there.

    ``skips``: whether a path below the source is left out. ``proceed`` is told of bytes; what it raises ends the copy.
    """

    def __init__(
        self, source: Path, target: Path, skips: Callable[[str], bool], proceed: Callable[[int], None]
    ) -> None:
        self._source = source
        self._target = target
        self._skips = skips
        self._proceed = proceed
        self._copied: dict[str, _Stamp] = {}
        self._links: dict[tuple[int, int], str] = {}

    def copy(self) -> None:
        """One pass over all of it."""
        self._links.clear()
        source = os.open(self._source, _DIRECTORY)
        # Not recursive: users nest directories as deep as they like.
        stack = [self._walk(_Place("", source, os.open(self._target, _DIRECTORY)))]
        try:
            while stack:
                inner = next(stack[-1], None)
                if inner is None:
                    stack.pop()
                else:
                    stack.append(self._walk(inner))
        finally:
            for walk in reversed(stack):
                walk.close()

    def _walk(self, place: _Place) -> Generator[_Place, None, None]:
        """Copies a directory's entries, giving out those that are directories; its own attributes come last."""
        try:
            names = self._names(place.path, place.source)
            for gone in set(self._names(place.path, place.target)).difference(names):
                self._remove(place, gone)
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    inner = self._entry(place, name)
                    if inner is not None:
                        yield inner
            _copy_attributes(place.source, place.target)
        finally:
            os.close(place.source)
            os.close(place.target)

    def _names(self, path: str, directory: int) -> list[str]:
        return [name for name in os.listdir(directory) if not self._skips(_join(path, name))]

    def _entry(self, place: _Place, name: str) -> _Place | None:
        found = os.stat(name, dir_fd=place.source, follow_symlinks=False)
        path = _join(place.path, name)
        if stat.S_ISDIR(found.st_mode):
            return self._directory(place, name, path)
        before = self._copied.get(path)
        link = self._links.setdefault((found.st_dev, found.st_ino), path) if found.st_nlink > 1 else path
        stamp = _stamp(found)
        if before != stamp:
            self._remove(place, name)
            try:
                self._copy(place, name, path, link, found)
            except FileNotFoundError:
                self._links.pop((found.st_dev, found.st_ino), None)
                raise
            except OSError as error:
                raise _at(error, self._source / path) from error
            if os.stat(name, dir_fd=place.target, follow_symlinks=False).st_ctime_ns - stamp.ctime_ns > _SETTLED_NS:
                self._copied[path] = stamp
        return None

    def _directory(self, place: _Place, name: str, path: str) -> _Place:
        source = os.open(name, _DIRECTORY, dir_fd=place.source)
        try:
            return _Place(path, source, self._target_directory(place, name))
        except BaseException:
            os.close(source)
            raise

    def _target_directory(self, place: _Place, name: str) -> int:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return os.open(name, _DIRECTORY, dir_fd=place.target)
        self._remove(place, name)
        os.mkdir(name, 0o700, dir_fd=place.target)
        return os.open(name, _DIRECTORY, dir_fd=place.target)

    def _copy(self, place: _Place, name: str, path: str, link: str, found: os.stat_result) -> None:
        if link != path:
            os.link(self._target / link, name, dst_dir_fd=place.target, follow_symlinks=False)
        elif stat.S_ISREG(found.st_mode):
            self._file(place, name)
        else:
            _make_special(place, name, found)

    def _file(self, place: _Place, name: str) -> None:
        source = os.open(name, _FILE, dir_fd=place.source)
        try:
            if not stat.S_ISREG(os.fstat(source).st_mode):
                raise FileNotFoundError
            target = os.open(name, _NEW, 0o600, dir_fd=place.target)
            try:
                self._contents(source, target)
                _copy_attributes(source, target)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _contents(self, source: int, target: int) -> None:
        end = os.fstat(source).st_size
        for start, stop in _data(source, end):
            at = os.lseek(target, start, os.SEEK_SET)
            while at < stop and (sent := os.sendfile(target, source, at, min(CHUNK, stop - at))):
                at += sent
                self._proceed(sent)
        os.ftruncate(target, end)

    def _remove(self, place: _Place, name: str) -> None:
        """Takes away what an earlier pass made."""
        self._copied.pop(_join(place.path, name), None)
        try:
            os.unlink(name, dir_fd=place.target)
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            shutil.rmtree(name, dir_fd=place.target)


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _stamp(found: os.stat_result) -> _Stamp:
    kind = stat.S_IFMT(found.st_mode)
    return _Stamp(found.st_dev, found.st_ino, kind, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _at(error: OSError, path: Path) -> OSError:
    return type(error)(error.errno, error.strerror, str(path))


def _data(source: int, end: int) -> Iterator[tuple[int, int]]:
    """Where a file holds something: ``(start, stop)`` by ``(start, stop)``."""
    at = 0
    while at < end:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
        except OSError:
            return  # ENXIO: nothing but a hole is left
        at = min(os.lseek(source, start, os.SEEK_HOLE), end)
        yield start, at


def _make_special(place: _Place, name: str, found: os.stat_result) -> None:
    """A symbolic link, FIFO, socket or device; extended attributes of users are on none of them."""
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(name, dir_fd=place.source), name, dir_fd=place.target)
    else:
        os.mknod(name, found.st_mode, found.st_rdev, dir_fd=place.target)
    with _allowed():
        os.chown(name, found.st_uid, found.st_gid, dir_fd=place.target, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        os.chmod(name, stat.S_IMODE(found.st_mode), dir_fd=place.target)
    times = (found.st_atime_ns, found.st_mtime_ns)
    os.utime(name, ns=times, dir_fd=place.target, follow_symlinks=False)


def _copy_attributes(source: int, target: int) -> None:
    found = os.fstat(source)
    # In this order: a change of owner takes capabilities and set-id bits away.
    with _allowed():
        os.fchown(target, found.st_uid, found.st_gid)
    _copy_xattrs(source, target)
    os.fchmod(target, stat.S_IMODE(found.st_mode))
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def _copy_xattrs(source: int, target: int) -> None:
    """Like the source's; a pass over what is there already takes away what the source lost."""
    names = set(os.listxattr(source))
    for name in set(os.listxattr(target)) - names:
        with _allowed():
            os.removexattr(target, name)
    for name in names:
        try:
            os.setxattr(target, name, os.getxattr(source, name))
        except OSError:
            if name.startswith(_MUST_KEEP):
                raise


def _allowed() -> contextlib.suppress:
    """For what only root may: others keep what they have."""
    return contextlib.suppress(PermissionError)
