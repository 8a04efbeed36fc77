"""Closed roots: ordinary directories that belong to something else and go where it goes (a session's ``context/``).

No name leads into one or out of it (``EXDEV``), it is read-only once it was archived (``EROFS``), and it is removed
with what it belongs to. There may be one for each session, so none is kept in mind longer than the kernel needs it.

A removal takes two steps: the root is put aside under a number, then deleted. What is found aside when the daemon
starts was left by one that died between them: its session says which way to go on.

Used by the FUSE thread only; deleting runs where it holds up nobody.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from backend.system_calls import RENAME_NOREPLACE, rename
from ctxfs.files.passthrough_blocking import Offload
from ctxfs.files.passthrough_inodes import Place
from ctxfs.files.passthrough_roots import Roots
from ctxfs.files.passthrough_tree import DiskTree, through

_ASIDE = ".ctxfs-removed"
_MISSING = (errno.ENOENT, errno.ENOTDIR)


class ClosedRoots:
    """The closed roots below the base of a tree, by their keys (``passthrough_roots``)."""

    def __init__(self, tree: DiskTree, roots: Roots, offload: Offload) -> None:
        self._tree = tree
        self._roots = roots
        self._offload = offload

    @contextmanager
    def visited(self, key: str, *, is_read_only: bool) -> Iterator[int]:
        """The inode number of a root for the time of the block (``FileNotFoundError``)."""
        with self._roots.visited(key) as root:
            assert root.place is not None
            root.place.is_read_only = is_read_only
            yield root.number

    def make(self, key: str, uid: int, gid: int, mode: int) -> None:
        """Makes a root where it is missing; group and mode of one that is there follow those of what it belongs to."""
        try:
            with self._roots.visited(key) as root, self._tree.held(root) as fd:
                found = os.fstat(fd)
                if (found.st_gid, stat.S_IMODE(found.st_mode)) != (gid, mode):
                    os.chown(through(fd), -1, gid)
                    os.chmod(through(fd), mode)
        except FileNotFoundError:
            self._roots.add(key, uid, gid, mode)

    def mtime(self, key: str) -> int:
        """When a name in a root last changed, ns; 0 where there is no root."""
        try:
            return os.stat(key, dir_fd=self._base(), follow_symlinks=False).st_mtime_ns
        except OSError as error:
            if error.errno in _MISSING:
                return 0
            raise

    def place(self, key: str) -> Place | None:
        """What holds in a root, None where there is none; whoever has something in it open is bound to it."""
        try:
            with self._roots.visited(key) as root:
                return root.place
        except (FileNotFoundError, NotADirectoryError):
            return None

    def put_aside(self, key: str, number: int) -> None:
        """Takes a root away from where it is; nothing where there is none."""
        with suppress(FileExistsError):
            os.mkdir(_ASIDE, 0o700, dir_fd=self._base())
        with suppress(FileNotFoundError, NotADirectoryError):
            self._move(key, f"{_ASIDE}/{number}")

    def put_back(self, key: str, number: int) -> None:
        """Undoes ``put_aside``."""
        with suppress(FileNotFoundError):
            self._move(f"{_ASIDE}/{number}", key)

    def aside(self) -> list[int]:
        """The numbers of what was put aside."""
        try:
            fd = os.open(_ASIDE, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._base())
        except FileNotFoundError:
            return []
        try:
            return [int(name) for name in os.listdir(fd) if name.isdecimal()]
        finally:
            os.close(fd)

    async def delete(self, number: int) -> None:
        """Deletes what was put aside."""
        await self._offload(partial(self.delete_now, number))

    def delete_now(self, number: int) -> None:
        """As ``delete``, for as long as it takes."""
        with suppress(FileNotFoundError):
            shutil.rmtree(f"{_ASIDE}/{number}", dir_fd=self._base())

    def _move(self, key: str, new_key: str) -> None:
        rename(self._base(), os.fsencode(key), self._base(), os.fsencode(new_key), RENAME_NOREPLACE)

    def _base(self) -> int:
        return self._tree.directory(self._tree.base)
