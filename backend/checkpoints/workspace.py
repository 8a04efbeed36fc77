"""One workspace: what each request does to it (spec 6.3, 6.5, 6.6). Synchronous; whoever calls holds its lock.

Every change is announced in the journal, made, entered in the catalogue, and then struck from the journal. ``settle``
finishes or undoes what is still there: after an error, before the next operation, and at a start what a dead daemon had
announced. Errors are those of ``backend.checkpoints.errors``.
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
    InvalidPath,
    SnapshotAlreadyExists,
    SnapshotNotFound,
    WriteLockConflict,
)
from backend.checkpoints.identity import Identity, is_found, is_reachable, opened, stands
from backend.checkpoints.journal import Adopting, Deleting, Intent, Journal, Releasing, Restoring, Taking
from backend.checkpoints.reporting import reported
from backend.checkpoints.snapshots import Snapshots
from backend.checkpoints.snapshots.walking import TreeChanged, is_empty
from backend.checkpoints.state import StateDirectory
from backend.checkpoints.times import now_text
from backend.checkpoints.watch import Watch
from backend.checkpoints.wire import DiffEntry, SnapshotEntry
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

    @property
    def path(self) -> str:
        """Where its users know it."""
        return self.catalogue.workspace_path

    def owner(self) -> int:
        """The uid whose workspace it is: of its directory, or if that is gone or another one, of the last known."""
        try:
            with opened(self.snapshots.root) as live:
                known = self._is_known(self.snapshots.identity_of(live))
                return os.fstat(live).st_uid if known else self.catalogue.owner
        except OSError:
            return self.catalogue.owner

    def save(self) -> None:
        """Writes the catalogue (``OSError``: the file may be the old one or the new)."""
        self._owes_catalogue = True
        data = msgspec.json.format(msgspec.json.encode(self.catalogue), indent=2)
        self._directory.save(self._directory.index(self.ws_id) / "index.json", data + b"\n")
        self._owes_catalogue = False

    def checkpoint(self, id: str, message: str | None, metadata: Any, pinned: bool) -> bool:
        """Takes a snapshot; False if there is nothing to take."""
        with self._operation():
            self.require_current()
            if not self.watch.is_quiet():
                raise WriteLockConflict("Workspace has active write operations. Please wait and retry.")
            if id in self.catalogue.snapshots or id in self.snapshots.ids():
                raise SnapshotAlreadyExists(f"snapshot id '{id}' already exists in workspace")
            with opened(self.snapshots.root) as live:
                self._require_known(self.snapshots.identity_of(live))
                if is_empty(live):
                    return False
                record = Record(message=message, metadata=metadata, pinned=pinned, created_at=now_text())
                self._take(id, record, live)
        return True

    def _take(self, id: str, record: Record, live: int) -> None:
        with self._announced(Taking(id, record)):
            for attempt in range(_ATTEMPTS):
                try:
                    self.snapshots.take(id, live)
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
        with self._operation():
            id = self.find(reference)
            old = self._current_or_none()
            with self._settled_after_an_error():
                new = self.snapshots.restore(id, lambda new: self.journal.begin(Restoring(new, old)))
            self._became(new)
            self._clear(old)
            self._end()
        return id

    def find(self, reference: str) -> str:
        """The id of a snapshot that is on disk (``SnapshotNotFound``)."""
        self.look_for_snapshots()
        id = catalogues.resolve(self.catalogue.snapshots, reference)
        if self.catalogue.snapshots[id].missing:
            raise SnapshotNotFound(f"snapshot {id} is missing from the disk: delete it to remove its record")
        return id

    def look_for_snapshots(self) -> None:
        """Notes which records have no snapshot on disk, which changes when a disk is mounted (``OSError``)."""
        present, snapshots = self.snapshots.ids(), self.catalogue.snapshots
        for id, record in snapshots.items():
            if record.missing != (id not in present):
                snapshots[id] = msgspec.structs.replace(record, missing=id not in present)

    def delete(self, reference: str, force: bool) -> str:
        """Deletes a snapshot; its id."""
        with self._operation():
            self.look_for_snapshots()
            id = catalogues.resolve(self.catalogue.snapshots, reference)
            record = self.catalogue.snapshots[id]
            if record.pinned and not record.missing and not force:
                raise ConfirmationRequired("Snapshot is pinned, use --force to confirm deletion")
            with self._announced(Deleting(id)):
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
        self._strike(id)

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
        """All snapshots, oldest first; which are missing is as it was last seen where the disk does not say."""
        with suppress(OSError):
            self.look_for_snapshots()
        return [catalogues.entry_of(self.path, id, record) for id, record in by_age(self.catalogue.snapshots)]

    def release(self) -> None:
        """Makes the workspace an ordinary directory and deletes its snapshots; its index directory is left."""
        with self._operation():
            intent = self.journal.read()
            if not (isinstance(intent, Releasing) and self._took_place(intent)):
                self.require_current()
                with self._settled_after_an_error():
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
        return self._require_known(found)

    def _require_known(self, found: Identity | None) -> Identity:
        if found is None or not self._is_known(found):
            raise InvalidPath(f"workspace was replaced; init adopts it: {self.path}")
        return found

    def _is_known(self, found: Identity) -> bool:
        known = self.catalogue.identity
        return known is None or known.same(found)

    def adopt_if_replaced(self) -> None:
        """Takes another directory that stands at the path now for the workspace's; a failed recover is given up."""
        with self._operation():
            require_no_mounts(self.path)
            try:
                self.require_current()
            except InvalidPath:
                stored = self.catalogue
                with self._settled_after_an_error():
                    self.move_in(Choice.stored(stored.backend or self.snapshots.backend, stored.data_root))
                self.finish_move_in()
                return
            if self.journal.read() is not None:
                self.journal.end()

    def move_in(self, choice: Choice) -> None:
        """Makes the directory that is at the path now the workspace; its journal is open until ``finish_move_in``."""
        self.catalogue.backend = choice.stored_backend
        self.catalogue.data_root = None if choice.data_root is None else str(choice.data_root)

        def announce(old: Identity, live: Identity | None) -> None:
            self.journal.begin(Adopting(self.path, choice.stored_backend, self.catalogue.data_root, old, live))

        self.snapshots.move_in(announce)
        self._note_directory()
        self.watch.arm()

    def finish_move_in(self) -> None:
        """Removes the directory that another has taken the place of."""
        intent = self.journal.read()
        self._clear(intent.old if isinstance(intent, Adopting) and self.snapshots.has_moved_in() else None)
        self._end()

    def _note_directory(self) -> None:
        """Remembers which directory the live tree is, and whose (``OSError``: it does not)."""
        known = self.catalogue.identity, self.catalogue.owner
        with opened(self.snapshots.root) as live:
            self.catalogue.identity = self.snapshots.identity_of(live)
            self.catalogue.owner = os.fstat(live).st_uid
        try:
            self.save()
        except OSError:
            self.catalogue.identity, self.catalogue.owner = known
            raise

    @contextmanager
    def _operation(self) -> Iterator[None]:
        """What the disk says inside is reported; what an operation before could not finish comes first."""
        with reported():
            if self.journal.read() is not None or self.catalogue.left is not None:
                self.settle()
            yield

    @contextmanager
    def _announced(self, intent: Taking | Deleting) -> Iterator[None]:
        """What happens inside is in the journal, and after an error undone."""
        with self._settled_after_an_error():
            self.journal.begin(intent)
            yield
        self._end()

    @contextmanager
    def _settled_after_an_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(OSError, TreeChanged, CheckpointError):
                self.settle()
            raise

    def settle(self) -> None:
        """Finishes what the journal announces if it took place, else undoes it, and removes what is left over.

        ``OSError``: it stays in the journal for the next time, as what cannot be told does.
        """
        intent, left = self.journal.read(), self.catalogue.left
        match intent, self._took_place(intent):
            case (Releasing(), True) | (_, None):
                return
            case Taking(id, record), True:
                self.catalogue.snapshots.setdefault(id, record)
                self._owes_catalogue = True
            case (Taking(id), False) | (Deleting(id), True):
                self._strike(id)
            case Restoring(new, old), True:
                self._became(new)
                left = old
            case Adopting(old=old), True:
                self._note_directory()
                left = old
            case Adopting(live=live), False:
                self.snapshots.move_out(live)
            case ((Restoring(new) | Releasing(new)), False):
                left = new
        self._clear(left)
        self._finish()

    def _took_place(self, intent: Intent | None) -> bool | None:
        """Whether an operation did; None if that cannot be told, for what it is about is not there (``OSError``)."""
        snapshots, path = self.snapshots, Path(self.path)
        match intent:
            case Taking(id) | Deleting(id):
                if not is_reachable(snapshots.bucket):
                    return None
                return (id in snapshots.ids()) is isinstance(intent, Taking)
            case Restoring(new, old):
                if is_found(new, snapshots.live_identity) or is_found(old, snapshots.staged_identity):
                    return True
                undone = is_found(old, snapshots.live_identity) or is_found(new, snapshots.staged_identity)
                return False if undone else None
            case Adopting():
                return snapshots.has_moved_in() or (False if is_reachable(path.parent) else None)
            case Releasing(new):
                return stands(new, path) or (False if snapshots.has_moved_in() else None)
        return False

    def _became(self, new: Identity) -> None:
        self.catalogue.identity = new
        self._owes_catalogue = True
        with suppress(OSError), opened(self.snapshots.root) as live:
            self.catalogue.owner = os.fstat(live).st_uid
        self.watch.arm()

    def _strike(self, id: str) -> None:
        self._owes_catalogue = self.catalogue.snapshots.pop(id, None) is not None or self._owes_catalogue

    def _clear(self, owned: Identity | None) -> None:
        """What is left is in the catalogue, and tried again before the next operation or by the next start."""
        left = None
        try:
            self.snapshots.clear(owned)
        except (OSError, TreeChanged, CheckpointError) as error:
            log.warning("%s: some of what the workspace was is left: %s", self.ws_id, error)
            left = owned
        self._owes_catalogue = left != self.catalogue.left or self._owes_catalogue
        self.catalogue.left = left

    def _finish(self) -> None:
        """Strikes from the journal what the catalogue has (``OSError``)."""
        if self._owes_catalogue:
            self.save()
        self.journal.end()

    def _end(self) -> None:
        """After what cannot be taken back: a full disk delays the record, and the journal stands in for it."""
        try:
            self._finish()
        except OSError as error:
            log.warning("%s: what was done could not be written down, and will be later: %s", self.ws_id, error)


def require_no_mounts(path: str) -> None:
    """``InvalidPath`` if something is mounted on a directory or in it."""
    below = path.rstrip("/") + "/"
    for mount in mounts():
        if mount.mountpoint == path or mount.mountpoint.startswith(below):
            raise InvalidPath(f"something is mounted at {mount.mountpoint}")
