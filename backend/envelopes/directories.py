"""Pinned directories of sessions: every access is relative to a descriptor and follows no symbolic link (spec 5).

The only module that opens, makes or removes files of the store. A directory is opened component by component from
``/``; what is put in its place afterwards is never looked at. Reads never block: not on a FIFO, not on a lock.
One ``Directory`` belongs to one thread.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time

from backend.envelopes.errors import EnvelopeError, io_error, io_errors
from backend.names import is_uuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

MAX_SESSION_FILE = 32 << 20
STALE_S = 3600
TOO_LARGE = f"session file exceeds the {MAX_SESSION_FILE} byte safety limit"

_SUFFIX = ".json"
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OPEN_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OPEN_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def checked_id(value: str) -> str:
    """A canonical session id, ``invalid_id`` for everything else: asked before any path is built."""
    if not is_uuid(value):
        raise EnvelopeError("invalid_id", value=value)
    return value


class SessionFile:
    """An open regular file of the store; closed by ``with``."""

    def __init__(self, id: str, path: str, descriptor: int) -> None:
        self.id = id
        self.path = path
        self.descriptor = descriptor
        found = os.fstat(descriptor)
        self.size = found.st_size
        self.modified_ms = milliseconds(found)
        self.is_regular = stat.S_ISREG(found.st_mode)

    def __enter__(self) -> SessionFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    @property
    def is_too_large(self) -> bool:
        """Whether it must not be read."""
        return self.size > MAX_SESSION_FILE

    def read(self) -> bytes:
        """All of it; ``corrupt`` over 32 MiB, judged before anything is read."""
        chunks: list[bytes] = []
        left = MAX_SESSION_FILE + 1 if not self.is_too_large else 0
        with io_errors("read session", self.path):
            while left > 0 and (
                chunk := os.pread(self.descriptor, min(left, self.size + 1), MAX_SESSION_FILE + 1 - left)
            ):
                chunks.append(chunk)
                left -= len(chunk)
        if left <= 0:
            raise EnvelopeError("corrupt", id=self.id, detail=TOO_LARGE)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def lock(self, operation: str) -> None:
        """Takes its lock at once, or ``conflict``; the lock goes with the descriptor."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EnvelopeError("conflict", id=self.id) from None
        except OSError as error:
            raise io_error(operation, self.path, error) from error


class Directory:
    """One directory of session files, pinned by a descriptor; ``what`` names it in errors."""

    def __init__(self, path: str, descriptor: int, what: str) -> None:
        self.path = path
        self.descriptor = descriptor
        self._what = what

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Lets the directory go."""
        os.close(self.descriptor)

    @property
    def is_removed(self) -> bool:
        """Whether it is no longer anywhere in the file system."""
        return os.fstat(self.descriptor).st_nlink == 0

    def ids(self) -> Iterator[str]:
        """The ids of its session files, in no order."""
        for id, _ in self._entries():
            yield id

    def times(self) -> Iterator[tuple[int, str]]:
        """mtime in ms and id of its session files, in no order; what vanishes meanwhile is passed over."""
        for id, entry in self._entries():
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            yield milliseconds(found), id

    def open(self, id: str) -> SessionFile | None:
        """A session's file, None where there is none; ``corrupt`` for whatever else has its name."""
        path = f"{self.path}/{id}{_SUFFIX}"
        try:
            descriptor = os.open(f"{id}{_SUFFIX}", _OPEN_FILE, dir_fd=self.descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._check_kind(id)
            raise io_error(f"open {self._what} session", path, error) from error
        file = SessionFile(id, path, descriptor)
        if not file.is_regular:
            os.close(descriptor)
            raise self._no_file(id, "not a regular file")
        return file

    def remove(self, id: str) -> None:
        """Removes a session's file; ``not_found`` where another was faster."""
        name = f"{id}{_SUFFIX}"
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            raise EnvelopeError("not_found", id=id) from None
        except OSError as error:
            raise io_error("remove", f"{self.path}/{name}", error) from error

    def locked(self, id: str) -> SessionFile:
        """A session's lock, held while its file is open, or ``conflict``; the file stays, for ``remove_lock``."""
        path = f"{self.path}/{_lock_name(id)}"
        with io_errors("open lock", path):
            descriptor = os.open(_lock_name(id), _OPEN_LOCK, 0o600, dir_fd=self.descriptor)
        lock = SessionFile(id, path, descriptor)
        try:
            self._take(lock)
        except BaseException:
            os.close(descriptor)
            raise
        return lock

    def lock_with(self, lock: SessionFile, id: str) -> bool:
        """Whether a lock that is held is now that of another session too, which had none."""
        try:
            held = f"/proc/self/fd/{lock.descriptor}"
            os.link(held, _lock_name(id), dst_dir_fd=self.descriptor, follow_symlinks=True)
        except OSError:  # it has one, or files here have one name only
            return False
        return True

    def remove_lock(self, id: str) -> None:
        """Removes a session's lock file, by whoever holds it; one that cannot be removed is reused."""
        try:
            os.unlink(_lock_name(id), dir_fd=self.descriptor)
        except OSError:
            return

    def replace(self, id: str, raw: bytes) -> None:
        """Writes a session's file: all of it or, on any error, nothing; on disk when this returns."""
        import uuid
        from contextlib import suppress

        name, temporary = f"{id}{_SUFFIX}", f".{id}.{uuid.uuid4()}.tmp"
        path = f"{self.path}/{temporary}"
        try:
            with io_errors("create temporary file", path):
                descriptor = os.open(temporary, _OPEN_NEW, 0o600, dir_fd=self.descriptor)
            with io_errors("write temporary file", path), open(descriptor, "wb") as file:  # whose end may write too
                os.fchmod(descriptor, 0o600)
                file.write(raw)
                file.flush()
                os.fsync(descriptor)
            with io_errors("replace", f"{self.path}/{name}"):
                os.rename(temporary, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self.descriptor)
            raise
        self.sync()

    def sync(self) -> None:
        """Waits until its names are on disk."""
        with io_errors("sync directory", self.path):
            os.fsync(self.descriptor)

    def make_private(self) -> None:
        """0700, whatever it was."""
        with io_errors("set private directory permissions", self.path):
            os.fchmod(self.descriptor, 0o700)

    def sweep(self) -> None:
        """Removes temporaries that crashed writers left more than an hour ago; best effort."""
        from contextlib import suppress

        newest = time.time() - STALE_S
        with suppress(OSError), os.scandir(self.descriptor) as found:
            stale = [entry.name for entry in found if _is_temporary(entry) and _mtime(entry) <= newest]
        for name in stale:
            with suppress(OSError):
                os.unlink(name, dir_fd=self.descriptor)

    def _entries(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        with io_errors(f"list {self._what} sessions", self.path), os.scandir(self.descriptor) as found:
            for entry in found:
                id, dot, rest = entry.name.partition(".")
                if dot + rest == _SUFFIX and is_uuid(id) and _is_regular(entry):
                    yield id, entry

    def _take(self, lock: SessionFile) -> None:
        if not lock.is_regular:
            raise EnvelopeError("corrupt", id=lock.id, detail="its lock is not a regular file")
        lock.lock("lock")
        found = os.fstat(lock.descriptor)
        if found.st_nlink == 0:  # whoever held it removed the session with it
            raise EnvelopeError("conflict", id=lock.id)
        # What has another name too is not this store's alone.
        if found.st_nlink == 1 and stat.S_IMODE(found.st_mode) != 0o600:
            with io_errors("set private file permissions", lock.path):
                os.fchmod(lock.descriptor, 0o600)

    def _check_kind(self, id: str) -> None:
        """``corrupt`` where what could not be opened is no file."""
        try:
            mode = os.stat(f"{id}{_SUFFIX}", dir_fd=self.descriptor, follow_symlinks=False).st_mode
        except OSError:
            return
        if stat.S_ISLNK(mode):
            raise self._no_file(id, "a symbolic link")
        if not stat.S_ISREG(mode):
            raise self._no_file(id, "not a regular file")

    def _no_file(self, id: str, kind: str) -> EnvelopeError:
        return EnvelopeError("corrupt", id=id, detail=f"{self._what} session entry is {kind}")


class MovingLock:
    """The lock of one session after another that is to be removed: one file, which gets the name of each in turn.

    A file for each would be made and removed at once, and to find a place for it ext4 without a journal passes over
    all that were removed in the last minutes. Nobody else takes the lock while any of its names is left; the last one
    goes before the lock does, as whoever opened it by then must find out.
    """

    def __init__(self) -> None:
        self._held: tuple[Directory, SessionFile, str] | None = None

    def __enter__(self) -> MovingLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self, directory: Directory, id: str) -> None:
        """Holds a session's lock until the next one is taken; ``conflict`` where it is held already."""
        if self._held is not None:
            _, lock, last = self._held
            if directory.lock_with(lock, id):
                directory.remove_lock(last)
                self._held = (directory, lock, id)
                return
        self.release()
        self._held = (directory, directory.locked(id), id)

    def release(self) -> None:
        """Holds none any more."""
        if self._held is not None:
            directory, lock, id = self._held
            self._held = None
            with lock:
                directory.remove_lock(id)


def opened(path: str, what: str) -> Directory | None:
    """The directory at an absolute path, None where there is none."""
    with io_errors(f"open {what} session directory", path):
        try:
            return Directory(path, _walk(path), what)
        except FileNotFoundError:
            return None


def made(path: str, what: str) -> Directory:
    """The directory at an absolute path; what is missing of it is made, 0700."""
    with io_errors(f"open {what} session directory", path):
        return Directory(path, _walk(path, _open_or_make), what)


def subdirectories(path: str) -> list[str]:
    """The names of directories in a directory, none where it does not exist; symbolic links are not among them."""
    with io_errors("list session roots", path):
        try:
            descriptor = _walk(path)
        except FileNotFoundError:
            return []
        try:
            with os.scandir(descriptor) as found:
                return [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
        finally:
            os.close(descriptor)


def milliseconds(found: os.stat_result) -> int:
    """An mtime in ms since 1970, never less than 0."""
    return max(0, found.st_mtime_ns // 1_000_000)


def _open(name: str, parent: int | None) -> int:
    return os.open(name, _OPEN_DIRECTORY, dir_fd=parent)


def _open_or_make(name: str, parent: int | None) -> int:
    try:
        return _open(name, parent)
    except FileNotFoundError:
        pass
    from contextlib import suppress

    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    descriptor = _open(name, parent)
    os.fchmod(descriptor, 0o700)  # whatever the umask
    return descriptor


def _walk(path: str, step: Callable[[str, int | None], int] = _open) -> int:
    """Opens ``path`` from ``/`` down, one component at a time."""
    descriptor = _open("/", None)
    for name in filter(None, path.split("/")):
        parent = descriptor
        try:
            descriptor = step(name, parent)
        finally:
            os.close(parent)
    return descriptor


def _lock_name(id: str) -> str:
    return f".{id}.lock"


def _is_regular(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file(follow_symlinks=False)
    except OSError:
        return False


def _is_temporary(entry: os.DirEntry[str]) -> bool:
    return entry.name.startswith(".") and entry.name.endswith(".tmp") and _is_regular(entry)


def _mtime(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return float("inf")
