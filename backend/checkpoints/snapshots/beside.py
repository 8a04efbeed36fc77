"""What is built beside a workspace and swapped with it, under ``.<ws_id>.tmp`` (spec 6.5).

The directory above may be its owner's, who can move names in it at any time: what is built is reached by descriptors
and in nobody's reach, and what is swapped in or removed is known by its identity.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from backend.checkpoints.errors import InternalError, InvalidPath
from backend.checkpoints.identity import ABSENT, Identity, identity_of, opened, opened_in
from backend.checkpoints.snapshots.attributes import drop_xattrs
from backend.checkpoints.snapshots.removing import remove_below
from backend.checkpoints.snapshots.walking import is_empty
from backend.durable import DISK_FULL
from backend.system_calls import RENAME_EXCHANGE, RENAME_NOREPLACE, rename

_IN_THE_WAY = frozenset((errno.ENOTEMPTY, errno.ENOTDIR, errno.EEXIST))


class Beside:
    """The place beside one workspace."""

    def __init__(self, ws_id: str, path: Path) -> None:
        self.name = f".{ws_id}.tmp"
        self._path = path

    @contextmanager
    def made_directory(self, parent: int) -> Iterator[int]:
        """Makes it an empty directory of root's that inherits nothing, and opens it.

        ``InvalidPath``: somebody put another in its place; ``InternalError``, ``OSError``.
        """
        self._make(parent, lambda: os.mkdir(self.name, 0o700, dir_fd=parent))
        with opened_in(parent, self.name) as staged:
            found = os.fstat(staged)
            if found.st_uid != 0 or found.st_mode & 0o077 or not is_empty(staged):
                raise self._moved()
            drop_xattrs(staged)
            yield staged

    def make_symlink(self, parent: int, target: Path) -> None:
        """Makes it a symlink (``InternalError``, ``OSError``)."""
        with suppress(OSError):
            if os.readlink(self.name, dir_fd=parent) == str(target):
                os.unlink(self.name, dir_fd=parent)
        self._make(parent, lambda: os.symlink(target, self.name, dir_fd=parent))

    def _make(self, parent: int, make: Callable[[], None]) -> None:
        try:
            with suppress(FileNotFoundError):
                os.rmdir(self.name, dir_fd=parent)
            make()
        except OSError as error:
            if error.errno in _IN_THE_WAY:
                raise InternalError(f"something is in the way: {self._path.parent / self.name}") from error
            raise

    def require_swaps(self, parent: int) -> None:
        """``InvalidPath`` where a rollback could not swap directories: better now than when it is needed."""
        other = f"{self.name}.swap"
        with suppress(OSError):
            os.rmdir(other, dir_fd=parent)
        try:
            os.mkdir(other, 0o700, dir_fd=parent)
            try:
                with self.made_directory(parent):
                    rename(parent, os.fsencode(self.name), parent, os.fsencode(other), RENAME_EXCHANGE)
            finally:
                for name in (other, self.name):
                    with suppress(FileNotFoundError):
                        os.rmdir(name, dir_fd=parent)
        except OSError as error:
            if error.errno in DISK_FULL:
                raise
            raise InvalidPath(f"nothing can be put in place of {self._path}: {error.strerror}") from error

    def swap(self, parent: int, is_right: Callable[[], bool]) -> None:
        """Swaps it with the workspace, or moves it there if that is gone.

        ``is_right`` looks whether the path is now what it should be; else all is put back
        (``InvalidPath``).
        """
        staged, name = os.fsencode(self.name), os.fsencode(self._path.name)
        flags = RENAME_EXCHANGE if exists_in(parent, self._path.name) else RENAME_NOREPLACE
        rename(parent, staged, parent, name, flags)
        if is_right():
            os.fsync(parent)
            return
        rename(parent, name, parent, staged, flags)
        raise self._moved()

    def _moved(self) -> InvalidPath:
        return InvalidPath(f"somebody moved things beside the workspace meanwhile: {self._path}")

    def has(self, parent: int, identity: Identity, name: str | None = None) -> bool:
        """Whether that directory is in this place, or at another name beside it."""
        try:
            with opened_in(parent, name or self.name) as fd:
                return identity.same(identity_of(fd))
        except OSError:
            return False

    def clear(self, owned: Identity | None) -> None:
        """Removes the directory ``owned`` from it, or what is empty there.

        ``OSError`` (nobody can look: its disk may not be mounted), ``TreeChanged``, ``InvalidPath``: it is left.
        """
        try:
            with opened(self._path.parent) as parent:
                if owned is not None:
                    self._empty(parent, owned)
                for name in (self.name, f"{self.name}.swap"):
                    _remove_empty(parent, name)
        except OSError as error:
            if owned is not None or error.errno not in ABSENT:
                raise

    def _empty(self, parent: int, owned: Identity) -> None:
        """What it is, is asked of the open directory: a name may mean another one a moment later."""
        with ExitStack() as stack:
            try:
                staged = stack.enter_context(opened_in(parent, self.name))
            except OSError as error:
                if error.errno in ABSENT:
                    return
                raise
            if owned.same(identity_of(staged)):
                os.fchmod(staged, 0o700)
                os.fchown(staged, 0, 0)
                remove_below(staged)


def _remove_empty(directory: int, name: str) -> None:
    """What is something else, or not empty, stays."""
    try:
        os.rmdir(name, dir_fd=directory)
    except OSError as error:
        if error.errno not in _IN_THE_WAY | ABSENT:
            raise


def exists_in(directory: int, name: str) -> bool:
    """Whether an open directory has that name, a dangling symlink included."""
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
