"""All workspaces: finding one by what a request calls it, adding and removing them, and the start (spec 6.3, 6.4, 6.6).

Synchronous and blocking. ``find`` and ``mine`` may run in any thread at any time; ``init`` and ``recover`` of one path
never overlap (the service sees to that), and ``load`` runs before everything else.
"""

import hashlib
import logging
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from backend.checkpoints.backends import Backends, Choice
from backend.checkpoints.catalogue import Catalogue, Record
from backend.checkpoints.errors import (
    CheckpointError,
    InternalError,
    InvalidPath,
    NotTheirs,
    WorkspaceNotFound,
    WriteLockConflict,
)
from backend.checkpoints.journal import Adopting, Journal, Releasing
from backend.checkpoints.reporting import reported
from backend.checkpoints.snapshots.data_roots import is_data_root
from backend.checkpoints.snapshots.walking import TreeChanged
from backend.checkpoints.state import Registry, StateDirectory
from backend.checkpoints.times import now_text
from backend.checkpoints.workspace import RECOVERED, Workspace, require_no_mounts
from backend.durable import make_private, sync_directory
from backend.errors import StoreCorrupt

ROOT = 0
PATH_MAX = 4096

log = logging.getLogger("ctxfs.checkpoints")


class Workspaces:
    """The registered workspaces of a state directory."""

    def __init__(self, directory: StateDirectory, backends: Backends) -> None:
        self._directory = directory
        self._backends = backends
        self._registry = Registry(directory)
        self._by_id: dict[str, Workspace] = {}
        self._lock = threading.Lock()
        self._claimed: dict[str, str] = {}

    def all(self) -> list[Workspace]:
        """Every workspace, in the order of registration."""
        return list(self._by_id.values())

    def mine(self, uid: int) -> list[Workspace]:
        """The workspaces that a user may use."""
        return [workspace for workspace in self.all() if may_use(uid, workspace)]

    def usage(self, uid: int) -> tuple[int, int]:
        """Total and used bytes of the fullest disk that a user's snapshots are on (``OSError``)."""
        places = {workspace.snapshots.disk() for workspace in self.mine(uid)} or {self._backends.mount_path}
        disks = [shutil.disk_usage(place) for place in places]
        total, used = max(((disk.total, disk.total - disk.free) for disk in disks), key=lambda disk: disk[1] / disk[0])
        return total, used

    def find(self, name: str, uid: int) -> Workspace:
        """The workspace that an id or a path means to a user (``WorkspaceNotFound``)."""
        found = self._named(name)
        if found is None or not may_use(uid, found):
            raise WorkspaceNotFound(f"workspace not found: {name}")
        return found

    def _named(self, name: str) -> Workspace | None:
        plain = name.rstrip("/")
        if not is_path(plain):
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
            known = self._at(path)
            if known is None:
                known = self._register(path, self._link_to(name, path))
            elif not may_use(uid, known):
                raise NotTheirs(f"not a directory of yours: {name}")
            elif path != str(known.snapshots.root) or path == known.path:
                known.adopt_if_replaced()
            return known

    def _at(self, path: str) -> Workspace | None:
        """The workspace whose directory, or live tree, is at a real path."""
        return next((each for each in self.all() if path in (each.path, str(each.snapshots.root))), None)

    def _checked_path(self, name: str, uid: int) -> str:
        """The real path of a directory that a user may protect. Nobody but root learns of what is not theirs."""
        if not name.strip():
            raise InvalidPath("workspace path is empty")
        path = os.path.realpath(name) if is_path(name) else ""
        try:
            found = os.stat(path)
        except OSError:
            found = None
        if uid != ROOT and (found is None or not stat.S_ISDIR(found.st_mode) or found.st_uid != uid):
            raise NotTheirs(f"not a directory of yours: {name}")
        if found is None:
            raise InvalidPath(f"path does not exist: {name}")
        if path == "/":
            raise InvalidPath("root '/' is not a supported workspace; use a specific subdirectory")
        if not stat.S_ISDIR(found.st_mode):
            raise InvalidPath(f"not a directory: {path}")
        return path

    def _require_apart(self, path: str, data_root: Path | None) -> None:
        """Snapshots are neither in a workspace nor around it."""
        if any(map(is_data_root, Path(path).parents)):
            raise InvalidPath(f"path is inside mount_path ({self._backends.mount_path}): {path}")
        roots = [self._backends.mount_path, self._directory.root, *([] if data_root is None else [data_root])]
        for root in [*roots, *(known.snapshots.root.parent for known in self.all() if known.catalogue.data_root)]:
            if Path(path).is_relative_to(root):
                raise InvalidPath(f"path is inside mount_path ({root}): {path}")
            if root.is_relative_to(path):
                raise InvalidPath(f"path holds the snapshots ({root}): {path}")
        try:
            path.encode()
        except UnicodeEncodeError:
            raise InvalidPath("the path's name is not UTF-8") from None

    def _link_to(self, name: str, path: str) -> tuple[str, Choice] | None:
        """Where a symlink to a live tree is that nobody has registered any more, and that tree's back end."""
        root = Path(path).parent
        link = Path(place_of(name))
        known = is_data_root(root) or not self._backends.data_roots().isdisjoint((root, root.parent))
        if not known or not link.is_symlink() or os.readlink(link) != path:
            return None
        return str(link), Choice(self._backends.backend_of(root), root)

    def _register(self, path: str, linked: tuple[str, Choice] | None) -> Workspace:
        if linked is None:
            choice = self._backends.choose(Path(path))
            self._require_apart(path, choice.data_root)
            require_no_mounts(path)
            with self._claimed_by(path, None) as ws_id:
                return self._register_as(ws_id, path, choice)
        link, choice = linked
        with self._claimed_by(link, os.path.basename(path)) as ws_id:
            return self._register_as(ws_id, link, choice)

    @contextmanager
    def _claimed_by(self, path: str, id: str | None) -> Iterator[str]:
        """The id that a path is registered under, a free one for None; nobody else gets it meanwhile."""
        with self._lock:
            if any(known.workspace_path == path for known in self._registry.all()):
                raise InternalError(f"it is registered and could not be loaded, the daemon's log says why: {path}")
            ws_id = self._free_id(path) if id is None else id
            if ws_id in self._claimed:
                raise WriteLockConflict(f"it is being registered. Please wait and retry: {path}")
            self._claimed[ws_id] = path
        try:
            yield ws_id
        finally:
            del self._claimed[ws_id]

    def _register_as(self, ws_id: str, path: str, choice: Choice) -> Workspace:
        make_private(self._directory.index(ws_id))
        workspace = self._open(ws_id, path, choice, self._catalogue(ws_id, path))
        workspace.catalogue.workspace_path = path
        self._adopt_orphans(workspace)
        try:
            workspace.move_in(choice)
            self._registry.add(ws_id, path, choice.stored_backend, workspace.catalogue.data_root)
        except BaseException:
            self._take_back(workspace)
            raise
        self._by_id[ws_id] = workspace
        workspace.finish_move_in()
        return workspace

    def _take_back(self, workspace: Workspace) -> None:
        """Undoes a registration that failed; if the directory has moved already, the next one finishes it."""
        with suppress(OSError, TreeChanged, CheckpointError):
            workspace.watch.close()
            if workspace.snapshots.has_moved_in():
                return
            workspace.settle()
            if workspace.journal.read() is None and not workspace.snapshots.ids():
                self._remove_index(workspace.ws_id)

    def _free_id(self, path: str) -> str:
        """An id made of the path; one that another path has not taken."""
        base = f"ws-{hashlib.sha256(path.encode()).hexdigest()[:6]}"
        id, number = base, 1
        while self._is_taken(id, path):
            number += 1
            id = f"{base}-{number}"
        return id

    def _is_taken(self, id: str, path: str) -> bool:
        if self._registry.has(id) or self._claimed.get(id, path) != path:
            return True
        return self._directory.index(id).exists() and self._catalogue(id, path).workspace_path != path

    def recover(self, workspace: Workspace) -> None:
        """Makes a workspace an ordinary directory and forgets it."""
        workspace.release()
        with reported():
            self._forget(workspace.ws_id)

    def _forget(self, ws_id: str) -> None:
        self._registry.remove(ws_id)
        self._by_id.pop(ws_id, None)
        self._remove_index(ws_id)

    def _remove_index(self, ws_id: str) -> None:
        """First what names snapshots: without it a start sweeps away what a dead daemon has left of the rest."""
        index = self._directory.index(ws_id)
        (index / "index.json").unlink(missing_ok=True)
        shutil.rmtree(index)
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
        for ws_id in self._unregistered():
            with _hindering_no_other(ws_id):
                self._finish_registration(ws_id)
        for known in self._registry.all():
            with _hindering_no_other(known.ws_id):
                self._load(known.ws_id, known.workspace_path, Choice.stored(known.origin_backend, known.data_root))
        for ws_id in self._unregistered():
            with _hindering_no_other(ws_id):
                self._sweep(ws_id)

    def _register_indexed(self) -> None:
        for ws_id in sorted(os.listdir(self._directory.indexes)):
            known = self._catalogue(ws_id, "")
            if known.backend is not None:
                self._registry.add(ws_id, known.workspace_path, known.backend, known.data_root)

    def _unregistered(self) -> list[str]:
        return sorted(ws_id for ws_id in os.listdir(self._directory.indexes) if not self._registry.has(ws_id))

    def _finish_registration(self, ws_id: str) -> None:
        """Registers a workspace whose directory moved just before a daemon died, and takes another back."""
        intent = Journal(self._directory, ws_id).read()
        if not isinstance(intent, Adopting):
            return
        choice = Choice.stored(intent.backend, intent.data_root)
        workspace = self._open(ws_id, intent.path, choice, self._catalogue(ws_id, intent.path))
        if workspace.snapshots.has_moved_in():
            self._registry.add(ws_id, intent.path, intent.backend, intent.data_root)
        else:
            self._take_back(workspace)

    def _sweep(self, ws_id: str) -> None:
        """Removes what a registration left that never was."""
        intent = Journal(self._directory, ws_id).read()
        if isinstance(intent, Adopting):
            return
        if isinstance(intent, Releasing) or not self._catalogue(ws_id, "").snapshots:
            self._remove_index(ws_id)

    def _load(self, ws_id: str, path: str, choice: Choice) -> None:
        make_private(self._directory.index(ws_id))
        workspace = self._open(ws_id, path, choice, self._catalogue(ws_id, path))
        self._by_id[ws_id] = workspace
        workspace.settle()
        if isinstance(workspace.journal.read(), Releasing):
            self.recover(workspace)
            return
        workspace.snapshots.link()
        self._adopt_orphans(workspace)
        workspace.look_for_snapshots()
        workspace.save()

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


@contextmanager
def _hindering_no_other(ws_id: str) -> Iterator[None]:
    """What is wrong with one workspace at a start is logged; it is as it was found, and the others are served."""
    try:
        yield
    except (OSError, TreeChanged, CheckpointError) as error:
        log.warning("%s was not repaired whole: %s", ws_id, error)


def place_of(name: str) -> str:
    """Where what a path names is, a symlink itself if it is one."""
    above, last = os.path.split(name.rstrip("/"))
    return os.path.join(os.path.realpath(above), last)


def is_path(name: str) -> bool:
    """Whether a text can be a path at all; what is longer takes long to be looked at."""
    return bool(name.strip()) and "\0" not in name and len(name.encode()) < PATH_MAX


def may_use(uid: int, workspace: Workspace) -> bool:
    """Whether a user may use a workspace: root may, and its owner (spec 6.4)."""
    return uid in (ROOT, workspace.owner())
