"""One workspace: what each request does to it (spec 6.3, 6.5, 6.6). Synchronous; whoever calls holds its lock.

Every change is announced in the journal, made, entered in the catalogue, and then struck from the journal; ``repair``
finishes or undoes at a start what a dead daemon had announced. Errors are those of ``backend.checkpoints.errors``.
"""

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from backend.checkpoints import catalogue as catalogues
from backend.checkpoints.backends import Choice
from backend.checkpoints.catalogue import Catalogue, Record, by_age
from backend.checkpoints.errors import (
    CheckpointError,
    ConfirmationRequired,
    DiskSpaceInsufficient,
    InternalError,
    InvalidPath,
    SnapshotAlreadyExists,
    SnapshotNotFound,
    WriteLockConflict,
)
from backend.checkpoints.identity import Identity, opened, stands
from backend.checkpoints.journal import Adopting, Deleting, Intent, Journal, Releasing, Restoring, Taking
from backend.checkpoints.snapshots import Snapshots
from backend.checkpoints.snapshots.walking import TreeChanged, is_empty
from backend.checkpoints.state import StateDirectory
from backend.checkpoints.times import now_text
from backend.checkpoints.watch import Watch
from backend.checkpoints.wire import DiffEntry, SnapshotEntry
from backend.durable import DISK_FULL
from backend.mountinfo import mounts

RECOVERED = "recovered at start"

_ATTEMPTS = 2

log = logging.getLogger("ctxfs.checkpoints")


class Workspace:
    """A registered workspace, its snapshots and what is known of them."""

    def __init__(self, ws_id: str, directory: StateDirectory, snapshots: Snapshots, catalogue: Catalogue) -> None:
        self.ws_id = ws_id
        self.snapshots = snapshots
        self.catalogue = catalogue
        self.watch = Watch(snapshots.root)
        self.journal = Journal(directory, ws_id)
        self._directory = directory
        self._owes_catalogue = False
        self._left: Identity | None = None

    @property
    def path(self) -> str:
        """Where its users know it."""
        return self.catalogue.workspace_path

    def owner(self) -> int:
        """The uid whose workspace it is: of its directory, or if that is gone or another one, of the last known."""
        try:
            with opened(self.snapshots.root) as fd:
                current = self.catalogue.identity is None or self._is_known(self.snapshots.identity())
                return os.fstat(fd).st_uid if current else self.catalogue.owner
        except OSError:
            return self.catalogue.owner

    def save(self) -> None:
        """Writes the catalogue (``OSError``)."""
        data = msgspec.json.format(msgspec.json.encode(self.catalogue), indent=2)
        self._directory.save(self._directory.index(self.ws_id) / "index.json", data + b"\n")
        self._owes_catalogue = False

    def checkpoint(self, id: str, message: str | None, metadata: Any, pinned: bool) -> bool:
        """Takes a snapshot; False if there is nothing to take."""
        with reported():
            self.require_current()
            if not self.watch.is_quiet():
                raise WriteLockConflict("Workspace has active write operations. Please wait and retry.")
            if id in self.catalogue.snapshots or id in self.snapshots.ids():
                raise SnapshotAlreadyExists(f"snapshot id '{id}' already exists in workspace")
            with opened(self.snapshots.root) as root:
                if is_empty(root):
                    return False
            self._take(id, Record(message=message, metadata=metadata, pinned=pinned, created_at=now_text()))
        return True

    def _take(self, id: str, record: Record) -> None:
        with self._announced(Taking(id, record)):
            for attempt in range(_ATTEMPTS):
                try:
                    self.snapshots.take(id)
                    break
                except TreeChanged as changed:
                    if attempt == _ATTEMPTS - 1:
                        raise WriteLockConflict(
                            f"{changed} changed while it was taken. Please wait and retry."
                        ) from None
            self.catalogue.snapshots[id] = record
            try:
                self.save()
            except OSError:
                del self.catalogue.snapshots[id]
                self.snapshots.delete(id)
                raise

    def rollback(self, reference: str) -> str:
        """Makes the workspace what a snapshot holds; the snapshot's id."""
        with reported():
            id = self.find(reference)
            old = self._current_or_none()
            with self._announced(None):
                new = self.snapshots.restore(id, lambda new: self.journal.begin(Restoring(new, old)))
                self._became(new)
                self._clear(old)
        self.watch.arm()
        return id

    def find(self, reference: str) -> str:
        """The id of a snapshot that is on disk (``SnapshotNotFound``)."""
        id = catalogues.resolve(self.catalogue.snapshots, reference)
        if self.catalogue.snapshots[id].missing:
            raise SnapshotNotFound(f"snapshot {id} is missing from the disk: delete it to remove its record")
        return id

    def delete(self, reference: str, force: bool) -> str:
        """Deletes a snapshot; its id."""
        id = catalogues.resolve(self.catalogue.snapshots, reference)
        record = self.catalogue.snapshots[id]
        if record.pinned and not record.missing and not force:
            raise ConfirmationRequired("Snapshot is pinned, use --force to confirm deletion")
        with reported(), self._announced(Deleting(id)):
            self._delete(id)
        return id

    def _delete(self, id: str) -> None:
        try:
            if id in self.snapshots.ids():
                self.snapshots.delete(id)
        except (OSError, TreeChanged) as error:
            if id in self.snapshots.ids():
                raise
            log.warning("%s: some of the deleted snapshot %r is left: %s", self.ws_id, id, error)
        self.catalogue.snapshots.pop(id, None)
        self._save_or_owe()

    def cleanup(self, victims: list[str]) -> list[str]:
        """Deletes snapshots one after another; those that are gone."""
        removed = []
        for id in victims:
            try:
                removed.append(self.delete(id, force=True))
            except CheckpointError as error:
                log.warning("%s: snapshot %r was not cleaned up: %s", self.ws_id, id, error)
        return removed

    def superfluous(self, keep: int) -> list[str]:
        """The snapshots beyond the newest ``keep`` of those that are not pinned, oldest first."""
        loose = [id for id, record in by_age(self.catalogue.snapshots) if not record.pinned]
        return loose[: max(0, len(loose) - keep)]

    def diff(self, old: str, new: str) -> list[DiffEntry]:
        """What differs between two snapshots."""
        with reported():
            before, after = self.find(old), self.find(new)
            return [] if before == after else self.snapshots.changes(before, after)

    def entries(self) -> list[SnapshotEntry]:
        """All snapshots, oldest first."""
        return [catalogues.entry_of(self.path, id, record) for id, record in by_age(self.catalogue.snapshots)]

    def release(self) -> None:
        """Makes the workspace an ordinary directory and deletes its snapshots; its index directory is left."""
        with reported():
            intent = self.journal.read()
            if not (isinstance(intent, Releasing) and self._took_place(intent)):
                self.require_current()
                with self._announced(None):
                    self.snapshots.release(lambda new: self.journal.begin(Releasing(new)))
            self.watch.close()
            self.snapshots.clear(None)
            self.snapshots.destroy()

    def require_current(self) -> None:
        """``InvalidPath`` unless the directory that was registered is there, with nothing mounted on or in it."""
        if self._current_or_none() is None:
            raise InvalidPath(f"path does not exist: {self.path}")

    def _current_or_none(self) -> Identity | None:
        """The workspace's directory, None if there is nothing at its path (``InvalidPath``: another one)."""
        for place in {self.path, str(self.snapshots.root)}:
            require_no_mounts(place)
        try:
            found = self.snapshots.identity()
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            found = None
        if found is None or not self._is_known(found):
            raise InvalidPath(f"workspace was replaced; init adopts it: {self.path}")
        return found

    def _is_known(self, found: Identity) -> bool:
        known = self.catalogue.identity
        return known is None or known.same(found)

    def move_in(self, choice: Choice) -> None:
        """Takes the directory that is at the path now for the workspace's; its journal stays open until ``settle``."""
        self.catalogue.backend = choice.stored_backend
        self.catalogue.data_root = None if choice.data_root is None else str(choice.data_root)

        def announce(old: Identity) -> None:
            self.journal.begin(Adopting(self.path, choice.stored_backend, self.catalogue.data_root, old))

        self.snapshots.move_in(announce)
        self.note_directory()
        self.watch.arm()

    def note_directory(self) -> None:
        """Remembers which directory is at the path, and whose (``OSError``)."""
        with opened(self.snapshots.root) as fd:
            self.catalogue.owner = os.fstat(fd).st_uid
        self.catalogue.identity = self.snapshots.identity()
        self.save()

    def _became(self, new: Identity) -> None:
        self.catalogue.identity = new
        with suppress(OSError), opened(self.snapshots.root) as fd:
            self.catalogue.owner = os.fstat(fd).st_uid
        self._save_or_owe()

    def _save_or_owe(self) -> None:
        """After what cannot be taken back: a full disk delays the record, and the journal stands in for it."""
        try:
            self.save()
        except OSError as error:
            log.warning("%s: the index could not be written, and will be later: %s", self.ws_id, error)
            self._owes_catalogue = True

    @contextmanager
    def _announced(self, intent: Taking | Deleting | None) -> Iterator[None]:
        """What happens inside is in the journal, and after an error undone."""
        if self._owes_catalogue:
            self.save()
        if self._left is not None:
            self._clear(self._left)
        try:
            if intent is not None:
                self.journal.begin(intent)
            yield
        except BaseException:
            with suppress(OSError):
                self.settle()
            raise
        if not self._owes_catalogue and self._left is None and not isinstance(self.journal.read(), Releasing):
            self._end()

    def settle(self) -> None:
        """Finishes what the journal announces if it took place, else undoes it (``OSError``)."""
        intent = self.journal.read()
        took_place = self._took_place(intent)
        match intent:
            case Taking(id, record) if took_place:
                self.catalogue.snapshots.setdefault(id, record)
                self.save()
            case Deleting(id) if took_place:
                self.catalogue.snapshots.pop(id, None)
                self.save()
            case Restoring(new, old):
                if took_place:
                    self._became(new)
                self._clear(old if took_place else new)
            case Adopting(old=old):
                self._clear(old if took_place else None)
            case Releasing(new):
                if took_place:
                    return
                self._clear(new)
        self.snapshots.clear(None)
        if self._left is None:
            self.journal.end()

    def _took_place(self, intent: Intent | None) -> bool:
        match intent:
            case Taking(id):
                return id in self.snapshots.ids()
            case Deleting(id):
                return id not in self.snapshots.ids()
            case Restoring(new):
                return self._is_live(new)
            case Adopting():
                return self.snapshots.has_moved_in()
            case Releasing(new):
                return stands(new, Path(self.path))
        return False

    def _is_live(self, identity: Identity) -> bool:
        with suppress(OSError):
            return identity.same(self.snapshots.live_identity())
        return False

    def _clear(self, old: Identity | None) -> None:
        """What is left is tried again before the next operation, or by the next start."""
        try:
            self.snapshots.clear(old)
            self._left = None
        except (OSError, TreeChanged) as error:
            log.warning("%s: some of what the workspace was is left: %s", self.ws_id, error)
            self._left = old

    def _end(self) -> None:
        try:
            self.journal.end()
        except OSError as error:
            log.warning("%s: the journal could not be ended: %s", self.ws_id, error)


def require_no_mounts(path: str) -> None:
    """``InvalidPath`` if something is mounted on a directory or in it."""
    below = path.rstrip("/") + "/"
    for mount in mounts():
        if mount.mountpoint == path or mount.mountpoint.startswith(below):
            raise InvalidPath(f"something is mounted at {mount.mountpoint}")


@contextmanager
def reported() -> Iterator[None]:
    """What the disk says inside becomes an error of the protocol."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if isinstance(error.filename, str) else ""
        message = f"{where}{error.strerror or error}"
        if error.errno in DISK_FULL:
            raise DiskSpaceInsufficient(message) from error
        raise InternalError(message) from error
    except TreeChanged as changed:
        raise WriteLockConflict(f"{changed} changed meanwhile. Please wait and retry.") from changed
