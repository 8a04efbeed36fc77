"""Files and directories as the jsonl store makes and reads them.

Every file is opened without following a link and only if it is a regular one, so that a tree somebody planted
links, FIFOs or sockets in cannot lead elsewhere or block. What is made is 0600 or 0700 whatever the umask, and
belongs to whom its directory belongs to (a daemon of root must not lock a user's own tools out). Small files are
replaced whole: written beside, then renamed. Nothing here waits for the disk; ``backend.jsonl.durability`` does.

Functions raise ``OSError``; ``reported`` turns it into ``StoreFull`` or ``StoreFailed`` at the store's boundary.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from backend.errors import CtxError, StoreFailed, StoreFull

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

_NEVER_FOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))


def failure(error: OSError) -> CtxError:
    """The store's error for one of the disk: full, or failed."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in _FULL:
        return StoreFull(f"the disk below the store is full{where}: free space and try again")
    return StoreFailed(f"the disk below the store failed: {error.strerror}{where}")


@contextmanager
def reported() -> Iterator[None]:
    """Failures of the disk inside reach the caller as the store's errors."""
    try:
        yield
    except OSError as error:
        raise failure(error) from error


def open_regular(path: str, flags: int) -> int:
    """A descriptor of a regular file; anything else there is an ``OSError`` (ELOOP, EINVAL, EISDIR, ENXIO)."""
    descriptor = os.open(path, flags | _NEVER_FOLLOW, FILE_MODE)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor


def regular(path: str) -> os.stat_result | None:
    """The attributes of a regular file, None where there is none (a link to one is none)."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def exists(path: str) -> bool:
    """Whether anything has that name, a dangling link included."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_directory(path: str) -> bool:
    """Whether it is a directory itself, not a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def names(path: str) -> list[str]:
    """The entries of a directory that is one, none otherwise; sorted."""
    return sorted(os.listdir(path)) if is_directory(path) else []


def directories(path: str) -> list[str]:
    """The names of the directories in a directory, links to directories left out; sorted."""
    if not is_directory(path):
        return []
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))


def read_small(path: str, limit: int) -> bytes | None:
    """The content of a regular file of at most ``limit`` bytes; None for anything else."""
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        content = os.read(descriptor, limit + 1)
    finally:
        os.close(descriptor)
    return content if len(content) <= limit else None


def read_range(descriptor: int, offset: int, size: int) -> bytes:
    """``size`` bytes at ``offset``, fewer only at the end of the file."""
    content = os.pread(descriptor, size, offset)
    if not content or len(content) == size:
        return content
    parts = [content]
    while content and (size := size - len(content)) > 0:
        offset += len(content)
        content = os.pread(descriptor, size, offset)
        parts.append(content)
    return b"".join(parts)


def write_range(descriptor: int, content: bytes, offset: int) -> None:
    """All of ``content`` at ``offset``."""
    written = os.pwrite(descriptor, content, offset)
    while written < len(content):
        written += os.pwrite(descriptor, content[written:], offset + written)


def create(path: str, content: bytes = b"", mtime: int | None = None) -> None:
    """Writes a file, in place of what a crash left there; ``mtime`` in ns."""
    descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        own(descriptor, os.path.dirname(path))
        os.fchmod(descriptor, FILE_MODE)
        write_range(descriptor, content, 0)
        if mtime is not None:
            os.utime(descriptor, ns=(mtime, mtime))
    finally:
        os.close(descriptor)


def make_directory(path: str) -> None:
    """A directory for its owner alone; ``FileExistsError`` where the name is taken."""
    os.mkdir(path, DIRECTORY_MODE)
    os.chmod(path, DIRECTORY_MODE)
    own(path, os.path.dirname(path))


def make_directories(path: str) -> None:
    """The directory and those above it, as far as they are missing."""
    if not is_directory(path):
        make_directories(os.path.dirname(path))
        make_directory(path)


def fsync(path: str) -> None:
    """Waits until a file or directory is on disk."""
    descriptor = os.open(path, os.O_RDONLY | _NEVER_FOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stamp(path: str, mtime: int) -> None:
    """Sets the mtime, in ns, of a file or directory."""
    os.utime(path, ns=(mtime, mtime), follow_symlinks=False)


def own(made: str | int, directory: str) -> None:
    """Gives what root made in somebody's directory to that somebody.

    Only that one's own tools need it, so it may fail where root is not allowed to (a user namespace).
    """
    if os.geteuid() == 0:
        above = os.stat(directory)
        if above.st_uid or above.st_gid:
            with suppress(OSError):
                os.chown(made, above.st_uid, above.st_gid)


def remove_if_there(path: str) -> None:
    """Unlinks a file, if there is one."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def replace(path: str, content: bytes, mtime: int) -> None:
    """Replaces a small file whole: written beside it, then renamed.

    One thread writes a store, so the name beside is fixed, and a leftover of a crash is overwritten.
    """
    directory, name = os.path.split(path)
    staged = f"{directory}/.new-{name}"
    create(staged, content, mtime)
    try:
        os.rename(staged, path)
    except OSError:
        remove_if_there(staged)
        raise


def overwrite(path: str, content: bytes, mtime: int) -> None:
    """Rewrites a small file that can be made again, in place.

    ext4 starts to write out a file that is renamed over another (1.2 ms instead of 0.02 ms here); only what is
    nowhere else needs that.
    """
    try:
        descriptor = open_regular(path, os.O_WRONLY)
    except OSError:
        replace(path, content, mtime)
        return
    try:
        write_range(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
        os.utime(descriptor, ns=(mtime, mtime))
    finally:
        os.close(descriptor)
