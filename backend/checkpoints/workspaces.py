"""All workspaces: finding one by what a request calls it, adding and removing them, and the start (spec 6.3, 6.4, 6.6).

Synchronous and blocking. ``find`` and ``mine`` may run in any thread at any time; ``init`` and ``recover`` of one path
never overlap (the service sees to that), and ``load`` runs before everything else.
"""

import hashlib
import logging
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from backend.checkpoints.backends import Backends, Choice
from backend.checkpoints.catalogue import Catalogue, Record
from backend.checkpoints.durable import make_private, sync_directory
from backend.checkpoints.errors import CheckpointError, InvalidPath, WorkspaceNotFound
from backend.checkpoints.identity import opened
from backend.checkpoints.journal import Journal, Releasing
from backend.checkpoints.snapshots.walking import TreeChanged
from backend.checkpoints.state import Registry, StateDirectory
from backend.checkpoints.times import now_text
from backend.checkpoints.workspace import RECOVERED, Workspace, reported, require_no_mounts
from backend.errors import StoreCorrupt

ROOT = 0

log = logging.getLogger("ctxfs.checkpoints")


class Workspaces:
    """The registered workspaces of a state directory."""

    def __init__(self, directory: StateDirectory, backends: Backends) -> None:
        self._directory = directory
        self._backends = backends
        self._registry = Registry(directory)
        self._by_id: dict[str, Workspace] = {}

    def all(self) -> list[Workspace]:
        """Every workspace, in the order of registration."""
        return list(self._by_id.values())

    def mine(self, uid: int) -> list[Workspace]:
        """The workspaces that a user may use."""
        return [workspace for workspace in self.all() if may_use(uid, workspace)]

    def usage(self) -> tuple[int, int]:
        """Total and used bytes of the disk that snapshots are on (``OSError``)."""
        found = shutil.disk_usage(self._backends.mount_path)
        return found.total, found.total - found.free

    def find(self, name: str, uid: int) -> Workspace:
        """The workspace that an id or a path means to a user (``WorkspaceNotFound``)."""
        found = self._named(name)
        if found is None or not may_use(uid, found):
            raise WorkspaceNotFound(f"workspace not found: {name}")
        return found

    def _named(self, name: str) -> Workspace | None:
        plain = name.rstrip("/") if name.strip() else ""
        if not plain or "\0" in plain:
            return None
        if plain in self._by_id:
            return self._by_id[plain]
        by_path = {workspace.path: workspace for workspace in self.all()}
        return by_path.get(os.path.realpath(plain)) or by_path.get(str(Path(plain)))

    def init(self, name: str, uid: int) -> Workspace:
        """The workspace at a path, registered or adopted if need be (``InvalidPath``, other ``CheckpointError``)."""
        with reported():
            named = self._by_id.get(name)
            path = self._checked_path(name if named is None else named.path, uid)
            known = self._named(name) or self._named(path)
            if known is None:
                return self._register(path)
            if not may_use(uid, known):
                raise InvalidPath(f"not a directory of yours: {name}")
            with opened(known.snapshots.root):
                self._adopt_if_replaced(known)
            return known

    def _checked_path(self, name: str, uid: int) -> str:
        """The real path of a directory that a user may protect. Nobody but root learns of what is not theirs."""
        if not name.strip():
            raise InvalidPath("workspace path is empty")
        path = os.path.realpath(name) if "\0" not in name else ""
        try:
            found = os.stat(path)
        except OSError:
            found = None
        if uid != ROOT and (found is None or not stat.S_ISDIR(found.st_mode) or found.st_uid != uid):
            raise InvalidPath(f"not a directory of yours: {name}")
        if found is None:
            raise InvalidPath(f"path does not exist: {name}")
        if path == "/":
            raise InvalidPath("root '/' is not a supported workspace; use a specific subdirectory")
        if not stat.S_ISDIR(found.st_mode):
            raise InvalidPath(f"not a directory: {path}")
        self._require_apart(path)
        require_no_mounts(path)
        return path

    def _require_apart(self, path: str) -> None:
        """Snapshots are neither in a workspace nor around it."""
        for root in (self._backends.mount_path, self._directory.root):
            if Path(path).is_relative_to(root):
                raise InvalidPath(f"path is inside mount_path ({root}): {path}")
            if root.is_relative_to(path):
                raise InvalidPath(f"path holds the snapshots ({root}): {path}")
        try:
            path.encode()
        except UnicodeEncodeError:
            raise InvalidPath("the path's name is not UTF-8") from None

    def _register(self, path: str) -> Workspace:
        ws_id = self._free_id(path)
        choice = self._backends.choose(Path(path))
        make_private(self._directory.index(ws_id))
        catalogue = self._catalogue(ws_id, path)
        catalogue.backend = choice.backend
        catalogue.data_root = None if choice.data_root is None else str(choice.data_root)
        workspace = self._open(ws_id, path, choice, catalogue)
        self._adopt_orphans(workspace)
        workspace.adopt()
        self._registry.add(ws_id, path, choice.backend, choice.data_root)
        self._by_id[ws_id] = workspace
        return workspace

    def _free_id(self, path: str) -> str:
        """An id made of the path; one that another path has not taken."""
        base = f"ws-{hashlib.sha256(path.encode()).hexdigest()[:6]}"
        id, number = base, 1
        while self._is_taken(id, path):
            number += 1
            id = f"{base}-{number}"
        return id

    def _is_taken(self, id: str, path: str) -> bool:
        if self._registry.has(id):
            return True
        return self._directory.index(id).exists() and self._catalogue(id, path).workspace_path != path

    def _adopt_if_replaced(self, workspace: Workspace) -> None:
        try:
            workspace.require_current()
        except InvalidPath:
            workspace.adopt()

    def recover(self, workspace: Workspace) -> None:
        """Makes a workspace an ordinary directory and forgets it."""
        workspace.release()
        with reported():
            self._forget(workspace.ws_id)

    def _forget(self, ws_id: str) -> None:
        self._registry.remove(ws_id)
        self._by_id.pop(ws_id, None)
        shutil.rmtree(self._directory.index(ws_id))
        sync_directory(self._directory.indexes)

    def load(self) -> None:
        """Registers what the state directory says, and repairs what a dead daemon left (``OSError``)."""
        try:
            self._registry.load()
        except FileNotFoundError:
            log.info("%s: a fresh start", self._directory.root)
        except StoreCorrupt as error:
            log.warning("the state file is no use, its workspaces are found by their indexes: %s", error)
            self._register_indexed()
        for known in self._registry.all():
            root = None if known.data_root is None else Path(known.data_root)
            self._load(known.ws_id, known.workspace_path, Choice(known.origin_backend, root))
        self._sweep()

    def _register_indexed(self) -> None:
        for ws_id in sorted(os.listdir(self._directory.indexes)):
            known = self._catalogue(ws_id, "")
            if known.backend is not None:
                root = None if known.data_root is None else Path(known.data_root)
                self._registry.add(ws_id, known.workspace_path, known.backend, root)

    def _sweep(self) -> None:
        """Removes what registrations left that never were."""
        for ws_id in os.listdir(self._directory.indexes):
            if self._registry.has(ws_id):
                continue
            intent = Journal(self._directory, ws_id).read()
            if isinstance(intent, Releasing) or not self._catalogue(ws_id, "").snapshots:
                shutil.rmtree(self._directory.index(ws_id))

    def _load(self, ws_id: str, path: str, choice: Choice) -> None:
        make_private(self._directory.index(ws_id))
        workspace = self._open(ws_id, path, choice, self._catalogue(ws_id, path))
        self._by_id[ws_id] = workspace
        try:
            workspace.settle()
            if isinstance(workspace.journal.read(), Releasing):
                self.recover(workspace)
                return
            self._adopt_orphans(workspace)
            self._mark_missing(workspace)
            workspace.save()
        except (OSError, TreeChanged, CheckpointError) as error:
            log.warning("%s (%s) was not repaired whole: %s", ws_id, path, error)

    def _open(self, ws_id: str, path: str, choice: Choice, catalogue: Catalogue) -> Workspace:
        snapshots = self._backends.snapshots(ws_id, Path(path), choice)
        return Workspace(ws_id, self._directory, snapshots, catalogue)

    def _catalogue(self, ws_id: str, path: str) -> Catalogue:
        """What the index file says; without one, or with a bad one, of a workspace without snapshots."""
        file = self._directory.index(ws_id) / "index.json"
        try:
            return msgspec.json.decode(file.read_bytes(), type=Catalogue)
        except FileNotFoundError:
            pass
        except msgspec.MsgspecError as error:
            log.warning("%s cannot be read, its snapshots are adopted as they are found: %s", file, error)
            with suppress(OSError):
                file.replace(file.with_suffix(".bad"))
        return Catalogue(workspace_path=path)

    def _adopt_orphans(self, workspace: Workspace) -> None:
        """Snapshots on disk without a record get one."""
        for id in sorted(workspace.snapshots.ids() - workspace.catalogue.snapshots.keys()):
            log.warning("%s: snapshot %r had no record and has one now", workspace.ws_id, id)
            record = Record(message=RECOVERED, pinned=True, created_at=now_text())
            workspace.catalogue.snapshots[id] = record

    def _mark_missing(self, workspace: Workspace) -> None:
        present, snapshots = workspace.snapshots.ids(), workspace.catalogue.snapshots
        for id, record in snapshots.items():
            if record.missing != (id not in present):
                snapshots[id] = msgspec.structs.replace(record, missing=id not in present)


def may_use(uid: int, workspace: Workspace) -> bool:
    """Whether a user may use a workspace: root may, and its owner (spec 6.4)."""
    return uid in (ROOT, workspace.owner())
