"""Which back end a workspace gets, and how it is opened again (spec 6.5; notes 2.2)."""

import os
from pathlib import Path
from typing import NamedTuple

from backend.checkpoints.config import Configuration
from backend.checkpoints.errors import InternalError
from backend.checkpoints.snapshots import Snapshots
from backend.checkpoints.snapshots.btrfs import BtrfsSnapshots
from backend.checkpoints.snapshots.copy import copy_data
from backend.checkpoints.snapshots.data_roots import DATA_ROOT, data_root_for
from backend.checkpoints.snapshots.loop_image import IMAGE, mount_image, size_of_image
from backend.checkpoints.snapshots.reflink import can_clone, clone_data
from backend.checkpoints.snapshots.trees import TreeSnapshots
from backend.checkpoints.state import StateDirectory
from backend.mountinfo import Mount, mounts

AUTO, COPY, REFLINK, BASE, LOOP = "auto", "copy", "reflink", "btrfs-base", "btrfs-loop"

# What ``state.json`` calls a back end: the btrfs ones as other daemons of the protocol do.
_STORED = {BASE: "BtrfsBase", LOOP: "BtrfsLoop", COPY: "Copy", REFLINK: "Reflink"}
_BACKENDS = {stored: backend for backend, stored in _STORED.items()}
_COPIERS = {COPY: copy_data, REFLINK: clone_data}


class Choice(NamedTuple):
    """A back end, and where it keeps things: None for the state directory."""

    backend: str
    data_root: Path | None

    @classmethod
    def stored(cls, backend: str, data_root: str | None) -> "Choice":
        """As the state file has it."""
        return cls(_BACKENDS.get(backend, backend), None if data_root is None else Path(data_root))

    @property
    def stored_backend(self) -> str:
        return _STORED[self.backend]


class Backends:
    """Makes the ``Snapshots`` of workspaces; ``wanted`` is the configured back end."""

    def __init__(self, directory: StateDirectory, wanted: str, mount_path: Path) -> None:
        self._directory = directory
        self._wanted = wanted
        self._mount_path = mount_path

    @property
    def mount_path(self) -> Path:
        """Where snapshots are, as far as there is one place."""
        return self._mount_path if self._wanted in (BASE, LOOP) else self._directory.snapshots

    def data_roots(self) -> set[Path]:
        """Where btrfs keeps workspaces by configuration; a workspace's own file system may have another."""
        if self._wanted == LOOP:
            return {self._mount_path}
        return {self._mount_path / DATA_ROOT} if self._wanted == BASE else set()

    def backend_of(self, data_root: Path) -> str:
        """The back end that keeps workspaces in such a place."""
        return LOOP if self._wanted == LOOP and self._mount_path in (data_root, data_root.parent) else BASE

    def start(self, configuration: Configuration) -> None:
        """Mounts the image, if that is the back end (``InternalError``, ``OSError``)."""
        if self._wanted != LOOP:
            return
        image = self._directory.root / IMAGE
        if not image.exists() and self._directory.has_workspaces_of(_STORED[LOOP]):
            raise InternalError(f"{image} is gone, and with it the workspaces that were in it")
        size = size_of_image(image.parent, configuration.img_size, configuration.img_max_percent)
        mount_image(image, self._mount_path, size)

    def choose(self, path: Path) -> Choice:
        """The back end for a new workspace (``InternalError``, ``OSError``)."""
        if self._wanted == LOOP:
            return Choice(LOOP, data_root_for(path, self._mount_path))
        if self._wanted == BASE:
            return Choice(BASE, data_root_for(path, self._base(path) / DATA_ROOT))
        if self._wanted == AUTO and (own := _btrfs_of(path)) is not None:
            return Choice(BASE, data_root_for(path, own / DATA_ROOT))
        if self._wanted != COPY and can_clone(path, self._directory.snapshots):
            return Choice(REFLINK, None)
        return Choice(COPY, None)

    def _base(self, path: Path) -> Path:
        """The mountpoint of the btrfs to use: the configured one, the workspace's own, or the machine's first."""
        if _btrfs_of(self._mount_path) is not None:
            return self._mount_path
        if (own := _btrfs_of(path)) is not None:
            return own
        for mount in mounts():
            if _is_writable_btrfs(mount) and not mount.source.startswith("/dev/loop"):
                return Path(mount.mountpoint)
        raise InternalError("no btrfs is mounted here: use the back end btrfs-loop, reflink, copy or auto")

    def snapshots(self, ws_id: str, path: Path, choice: Choice) -> Snapshots:
        """The snapshots of a workspace (``InternalError``: the back end is not known)."""
        if choice.data_root is not None:
            return BtrfsSnapshots(choice.backend, ws_id, path, choice.data_root)
        copier = _COPIERS.get(choice.backend)
        if copier is None:
            raise InternalError(f"{path} has an unknown back end: {choice.backend}")
        bucket = self._directory.snapshots / ws_id
        return TreeSnapshots(choice.backend, ws_id, path, bucket, self._directory.index(ws_id) / "stamps", copier)


def _btrfs_of(path: Path) -> Path | None:
    """The mountpoint of the writable btrfs that a path is on."""
    around = [mount for mount in mounts() if path.is_relative_to(mount.mountpoint)]
    if not around:
        return None
    deepest = max(reversed(around), key=lambda mount: len(mount.mountpoint))
    return Path(deepest.mountpoint) if _is_writable_btrfs(deepest) else None


def _is_writable_btrfs(mount: Mount) -> bool:
    return mount.fstype == "btrfs" and "ro" not in mount.options and os.path.isabs(mount.source)
