"""Snapshots that are trees of files in the state directory, for ``copy`` and ``reflink`` (spec 6.5).

The workspace stays a real directory. A rollback builds a tree beside it, in nobody's reach, and swaps the two.

    <bucket>/<id>/             a snapshot; published by a rename once it is on disk
    <bucket>/.new/             one that is being taken
    <bucket>/.old/             one that is being deleted
    <parent>/.<ws_id>.tmp/     what a rollback builds, and afterwards what the workspace was
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from backend.checkpoints.identity import Identity, identity_of, opened, opened_in
from backend.checkpoints.snapshots.attributes import copy_attributes
from backend.checkpoints.snapshots.beside import Beside
from backend.checkpoints.snapshots.comparing import compare
from backend.checkpoints.snapshots.copying import (
    CLOCK_GRAIN_NS,
    NOTHING_BEFORE,
    CopyData,
    Previous,
    Stamp,
    TreeCopy,
    TreeRestoration,
)
from backend.checkpoints.snapshots.removing import remove_below
from backend.checkpoints.wire import DiffEntry
from backend.durable import make_private, sync_directory
from backend.system_calls import RENAME_NOREPLACE, rename, sync_file_system

_NEW = ".new"
_OLD = ".old"


class _Stamps(msgspec.Struct, frozen=True):
    """The stamps of the live files when a snapshot was taken, and which directory that snapshot is."""

    snapshot: str
    identity: Identity
    stamps: dict[bytes, Stamp]


class TreeSnapshots:
    """The live tree of one workspace, and its snapshots. Calls on one workspace never overlap but for ``changes``."""

    def __init__(self, backend: str, ws_id: str, path: Path, bucket: Path, stamps: Path, copy_data: CopyData) -> None:
        """``stamps``: a file that may be lost."""
        self.backend = backend
        self._path = path
        self.bucket = bucket
        self._stamps = stamps
        self._copy_data = copy_data
        self._beside = Beside(ws_id, path)

    @property
    def root(self) -> Path:
        """Where the live tree is."""
        return self._path

    def move_in(self, announce: Callable[[Identity, Identity | None], None]) -> None:
        """The directory stays where it is."""
        announce(self.identity(), None)
        make_private(self.bucket)
        with opened(self._path.parent) as parent:
            self._beside.require_swaps(parent)

    def has_moved_in(self) -> bool:
        return False

    def move_out(self, live: Identity | None) -> None:
        self.clear(None)
        with suppress(OSError):
            self.bucket.rmdir()

    def link(self) -> None:
        """There is none."""

    def identity(self) -> Identity:
        """Which directory stands at the workspace's path (``OSError``: none, or another kind)."""
        with opened(self._path) as fd:
            return identity_of(fd)

    def live_identity(self) -> Identity:
        return self.identity()

    def identity_of(self, root: int) -> Identity:
        return identity_of(root)

    def staged_identity(self) -> Identity:
        with opened(self._path.parent) as parent, opened_in(parent, self._beside.name) as staged:
            return identity_of(staged)

    def ids(self) -> set[str]:
        """The snapshots on disk."""
        with suppress(FileNotFoundError):
            return {name for name in os.listdir(self.bucket) if not name.startswith(".")}
        return set()

    def take(self, id: str, live: int) -> None:
        """Makes a snapshot, whole and on disk, or none (``TreeChanged``, ``InvalidPath``, ``OSError``)."""
        make_private(self.bucket)
        with opened(self.bucket) as bucket:
            _remove(bucket, _NEW)
            os.mkdir(_NEW, 0o700, dir_fd=bucket)
            try:
                stamps = self._fill(bucket, live, id)
                rename(bucket, _NEW.encode(), bucket, os.fsencode(id), RENAME_NOREPLACE)
            except BaseException:
                with suppress(OSError):
                    _remove(bucket, _NEW)
                raise
            os.fsync(bucket)
        self._keep(stamps)

    def _fill(self, bucket: int, root: int, id: str) -> _Stamps:
        sync_file_system(root)
        with opened_in(bucket, _NEW) as new, self._previous() as previous:
            copy = TreeCopy(root, new, self._copy_data, previous)
            copy.run()
            copy_attributes(root, new, os.fstat(root))
            sync_file_system(new)
            return _Stamps(id, identity_of(new), copy.stamps)

    @contextmanager
    def _previous(self) -> Iterator[Previous]:
        """The snapshot that the stamps are of, if it is still there."""
        try:
            kept = msgspec.msgpack.decode(self._stamps.read_bytes(), type=_Stamps)
            root = os.open(self.bucket / kept.snapshot, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, msgspec.MsgspecError):
            yield NOTHING_BEFORE
            return
        try:
            yield Previous(root, kept.stamps) if identity_of(root).same(kept.identity) else NOTHING_BEFORE
        finally:
            os.close(root)

    def _keep(self, stamps: _Stamps) -> None:
        """What cannot be kept makes the next snapshot slower and nothing else."""
        temporary = self._stamps.with_suffix(".tmp")
        with suppress(OSError):
            with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(msgspec.msgpack.encode(stamps))
            temporary.replace(self._stamps)

    def delete(self, id: str) -> None:
        """Deletes a snapshot; what is left of it after an error is no snapshot any more (``OSError``)."""
        with opened(self.bucket) as bucket:
            _remove(bucket, _OLD)
            os.rename(id, _OLD, src_dir_fd=bucket, dst_dir_fd=bucket)
            os.fsync(bucket)
            _remove(bucket, _OLD)

    def changes(self, old: str, new: str) -> list[DiffEntry]:
        """What differs between two snapshots (``OSError``)."""
        with opened(self.bucket / old) as before, opened(self.bucket / new) as after:
            return compare(before, after)

    def restore(self, id: str, announce: Callable[[Identity], None]) -> Identity:
        """Makes the live tree what a snapshot holds; which directory it is now.

        ``announce`` is told which directory it will be before it is. What the tree was is left for ``clear``.
        On an error it is as it was (``TreeChanged``, ``InternalError``, ``OSError``).
        """
        with opened(self._path.parent) as parent, opened(self.bucket / id) as snapshot:
            with self._beside.made_directory(parent) as staged:
                identity = identity_of(staged)
                announce(identity)
                copy = TreeRestoration(snapshot, staged, self._copy_data)
                copy.run()
                copy_attributes(snapshot, staged, os.fstat(snapshot))
                sync_file_system(staged)
            time.sleep(CLOCK_GRAIN_NS / 1e9)
            self._beside.swap(parent, lambda: self._beside.has(parent, identity, self._path.name))
            self._keep(_Stamps(id, identity_of(snapshot), copy.stamps))
        return identity

    def clear(self, owned: Identity | None) -> None:
        """Removes left-overs: of snapshots, and beside the workspace the directory ``owned`` (``OSError``)."""
        with suppress(FileNotFoundError), opened(self.bucket) as bucket:
            for name in (_NEW, _OLD):
                _remove(bucket, name)
        self._beside.clear(owned)

    def release(self, announce: Callable[[Identity], None]) -> None:
        """The workspace is an ordinary directory already."""
        announce(self.identity())

    def destroy(self) -> None:
        """Deletes all snapshots, of which each is whole or gone if it fails (``OSError``, ``TreeChanged``)."""
        for id in self.ids():
            self.delete(id)
        with suppress(FileNotFoundError), opened(self.bucket) as bucket:
            remove_below(bucket)
        with suppress(FileNotFoundError):
            self.bucket.rmdir()
            sync_directory(self.bucket.parent)

    def disk(self) -> Path:
        return self.bucket.parent


def _remove(directory: int, name: str) -> None:
    """Removes a directory and all in it, if it is there."""
    with suppress(FileNotFoundError):
        with opened_in(directory, name) as root:
            remove_below(root)
        os.rmdir(name, dir_fd=directory)
