"""Snapshots that are subvolumes of a btrfs (spec 6.5; notes 2.3, 2.5, 2.13): as fast as what changed is small.

    <data root>/<ws_id>                      the live tree, a subvolume
    <data root>/<ws_id>.rollback-tmp         what a rollback or an init builds, and afterwards what the tree was
    <data root>/snapshots/<ws_id>/<id>       a snapshot; nobody but root reaches it
    <path>                                   a symlink to the live tree
    <parent>/.<ws_id>.tmp                    what init and recover swap with the path

Which subvolume it is says its identity: birth and inode of a subvolume's root are those of what it was made from.
"""

import errno
import logging
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from backend.checkpoints.errors import InvalidPath
from backend.checkpoints.identity import ABSENT, Identity, identity_of, is_found, opened, opened_in
from backend.checkpoints.snapshots import btrfs_calls as btrfs
from backend.checkpoints.snapshots.attributes import copy_attributes
from backend.checkpoints.snapshots.beside import Beside, exists_in
from backend.checkpoints.snapshots.comparing import compare
from backend.checkpoints.snapshots.copying import Stamp, TreeCopy, stamp_of
from backend.checkpoints.snapshots.data_roots import make_data_root
from backend.checkpoints.snapshots.removing import remove_below
from backend.checkpoints.snapshots.send_stream import changes
from backend.checkpoints.snapshots.transfer import transfer_data
from backend.checkpoints.snapshots.walking import TreeChanged, walk
from backend.checkpoints.wire import DiffEntry
from backend.durable import make_private
from backend.system_calls import RENAME_EXCHANGE, RENAME_NOREPLACE, change_owner, rename, sync_file_system

log = logging.getLogger("ctxfs.checkpoints")


class BtrfsSnapshots:
    """The live tree of one workspace, and its snapshots."""

    def __init__(self, backend: str, ws_id: str, path: Path, data_root: Path) -> None:
        self.backend = backend
        self.root = data_root / ws_id
        self._path = path
        self._data_root = data_root
        self.bucket = data_root / "snapshots" / ws_id
        self._staged = f"{ws_id}.rollback-tmp"
        self._beside = Beside(ws_id, path)

    def identity(self) -> Identity:
        """Which subvolume the path leads to (``OSError``: none, or another kind)."""
        with opened(self._path.parent) as parent:
            if not self._leads_here(parent):
                raise NotADirectoryError(errno.ENOTDIR, "leads elsewhere", str(self._path))
        return self.live_identity()

    def _leads_here(self, parent: int) -> bool:
        """Whether the path is the symlink (``FileNotFoundError``: nothing is there)."""
        try:
            return os.readlink(self._path.name, dir_fd=parent) == str(self.root)
        except FileNotFoundError:
            raise
        except OSError:
            return False

    def live_identity(self) -> Identity:
        with opened(self.root) as live:
            return _subvolume_identity(live)

    def identity_of(self, root: int) -> Identity:
        return _subvolume_identity(root)

    def staged_identity(self) -> Identity:
        with opened(self._data_root / self._staged) as staged:
            return _subvolume_identity(staged)

    def has_moved_in(self) -> bool:
        try:
            return os.readlink(self._path) == str(self.root)
        except OSError as error:
            if error.errno != errno.EINVAL and error.errno not in ABSENT:
                raise
            return False

    def ids(self) -> set[str]:
        with suppress(FileNotFoundError):
            return set(os.listdir(self.bucket))
        return set()

    def take(self, id: str, live: int) -> None:
        make_private(self.bucket)
        with opened(self.bucket) as bucket:
            _require_alone(live, self._path)
            btrfs.snapshot(live, bucket, id, read_only=True)

    def delete(self, id: str) -> None:
        with opened(self.bucket) as bucket:
            btrfs.destroy(bucket, id)
            sync_file_system(bucket)

    def changes(self, old: str, new: str) -> list[DiffEntry]:
        with opened(self.bucket / old) as before, opened(self.bucket / new) as after:
            try:
                return changes(_sent(after, btrfs.subvolume_id(before)))
            except OSError as error:
                if error.errno != errno.ENAMETOOLONG:
                    raise
                return compare(before, after)  # a stream has no paths beyond PATH_MAX

    def restore(self, id: str, announce: Callable[[Identity], None]) -> Identity:
        with opened(self._data_root) as root, opened(self.bucket / id) as snapshot:
            with suppress(FileNotFoundError), opened(self.root) as live:
                _require_alone(live, self._path)
            self._destroy_staged()
            btrfs.snapshot(snapshot, root, self._staged, read_only=False)
            with opened_in(root, self._staged) as staged:
                identity = _subvolume_identity(staged)
            announce(identity)
            self._swap_live(root)
        self.link()
        return identity

    def _swap_live(self, root: int) -> None:
        flags = RENAME_EXCHANGE if self.root.exists() else RENAME_NOREPLACE
        rename(root, os.fsencode(self._staged), root, os.fsencode(self.root.name), flags)
        sync_file_system(root)

    def link(self) -> None:
        """Makes the path a symlink to the live tree, unless a directory or a file stands there (``OSError``)."""
        with opened(self._path.parent) as parent:
            if exists_in(parent, self._path.name):
                if self._leads_here(parent):
                    return
                if not os.path.islink(self._path):
                    log.warning("%s: something else than the link to %s stands there and stays", self._path, self.root)
                    return
            self._beside.make_symlink(parent, self.root)
            os.rename(self._beside.name, self._path.name, src_dir_fd=parent, dst_dir_fd=parent)
            os.fsync(parent)

    def move_in(self, announce: Callable[[Identity, Identity | None], None]) -> None:
        """Copies the directory into a subvolume and puts a symlink in its place, unless it changes meanwhile."""
        if self.has_moved_in():
            return
        make_data_root(self._data_root)
        make_private(self.bucket)
        with opened(self._path.parent) as parent, opened(self._data_root) as root, opened(self._path) as original:
            old = identity_of(original)
            announce(old, self._live_or_none())
            before = _stamps(original)
            self._fill_staged(root, original)
            self._beside.make_symlink(parent, self.root)
            self._swap_live(root)
            self._beside.swap(parent, lambda: self._is_moved(parent, old, original, before))
            self._give_link(parent, original)

    def _live_or_none(self) -> Identity | None:
        try:
            return self.live_identity()
        except FileNotFoundError:
            return None

    def _fill_staged(self, root: int, source: int) -> None:
        self._destroy_staged()
        btrfs.create_subvolume(root, self._staged)
        with opened_in(root, self._staged) as staged:
            os.fchmod(staged, 0o700)
            TreeCopy(source, staged, transfer_data).run()
            copy_attributes(source, staged, os.fstat(source))
            sync_file_system(staged)

    def _is_moved(self, parent: int, old: Identity, original: int, before: dict[str, Stamp]) -> bool:
        """Whether the symlink took the place of what was copied, and that has not changed since."""
        if not self._beside.has(parent, old):
            return False
        return _stamps(original) == before

    def _give_link(self, parent: int, original: int) -> None:
        """To whom can let everybody follow it: in a sticky directory only its owner's links are followed.

        By now its name may mean anything.
        """
        above, owner = os.fstat(parent), os.fstat(original)
        of = above if above.st_mode & 0o1002 == 0o1002 else owner
        link = os.open(self._path.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            if stat.S_ISLNK(os.fstat(link).st_mode) and os.readlink("", dir_fd=link) == str(self.root):
                change_owner(link, of.st_uid, of.st_gid)
        finally:
            os.close(link)

    def move_out(self, live: Identity | None) -> None:
        with suppress(FileNotFoundError), opened(self._data_root) as root:
            if live is None:
                _destroy(root, self.root.name)
            elif is_found(live, self.staged_identity):
                self._swap_live(root)
        self.clear(None)
        with suppress(OSError):
            self.bucket.rmdir()

    def release(self, announce: Callable[[Identity], None]) -> None:
        """Copies the live tree back to the path, unless it changes meanwhile."""
        with opened(self._path.parent) as parent, opened(self.root) as live:
            before = _stamps(live)
            with self._beside.made_directory(parent) as staged:
                identity = identity_of(staged)
                announce(identity)
                TreeCopy(live, staged, transfer_data).run()
                copy_attributes(live, staged, os.fstat(live))
                sync_file_system(staged)
            if _stamps(live) != before:
                raise TreeChanged(str(self._path))
            self._beside.swap(parent, lambda: self._beside.has(parent, identity, self._path.name))
            with suppress(FileNotFoundError):
                os.unlink(self._beside.name, dir_fd=parent)

    def clear(self, owned: Identity | None) -> None:
        self._destroy_staged()
        with suppress(OSError):
            if os.readlink(self._path.parent / self._beside.name) == str(self.root):
                (self._path.parent / self._beside.name).unlink()
        self._beside.clear(owned)

    def _destroy_staged(self) -> None:
        with suppress(FileNotFoundError), opened(self._data_root) as root:
            _destroy(root, self._staged)

    def destroy(self) -> None:
        with opened(self._data_root) as root:
            with suppress(FileNotFoundError), opened(self.bucket) as bucket:
                for id in self.ids():
                    btrfs.destroy(bucket, id)
            with suppress(FileNotFoundError):
                self.bucket.rmdir()
            for name in (self._staged, self.root.name):
                with suppress(FileNotFoundError):
                    _destroy(root, name)
            sync_file_system(root)

    def disk(self) -> Path:
        return self._data_root


def _subvolume_identity(fd: int) -> Identity:
    return Identity(0, btrfs.subvolume_id(fd), identity_of(fd).birth_ns)


def _require_alone(live: int, path: Path) -> None:
    """A snapshot does not hold the subvolumes inside."""
    if btrfs.has_subvolumes(live):
        raise InvalidPath(f"there is a subvolume inside: {path}")


def _destroy(root: int, name: str) -> None:
    """Deletes a subvolume with whatever others are inside."""
    with opened_in(root, name) as doomed:
        if btrfs.has_subvolumes(doomed):
            remove_below(doomed)
    btrfs.destroy(root, name)


def _stamps(root: int) -> dict[str, Stamp]:
    return {entry.path: stamp_of(entry.stat) for entry in walk(root)}


def _sent(root: int, parent_id: int) -> bytes:
    """The stream of what changed; the kernel writes it in a thread of its own, for a pipe holds little of it."""
    read_end, write_end = os.pipe()
    failures: list[OSError] = []

    def write() -> None:
        try:
            btrfs.send(root, parent_id, write_end)
        except OSError as error:
            failures.append(error)
        finally:
            os.close(write_end)

    sender = threading.Thread(target=write, name="btrfs-send")
    sender.start()
    with os.fdopen(read_end, "rb") as pipe:
        stream = pipe.read()
    sender.join()
    if failures:
        raise failures[0]
    return stream
