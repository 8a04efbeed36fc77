"""Which back end a workspace gets, and how it is opened again (spec 6.5)."""

from pathlib import Path
from typing import NamedTuple

from backend.checkpoints.errors import InternalError
from backend.checkpoints.snapshots import Snapshots
from backend.checkpoints.snapshots.copy import copy_data
from backend.checkpoints.snapshots.reflink import can_clone, clone_data
from backend.checkpoints.snapshots.trees import TreeSnapshots
from backend.checkpoints.state import StateDirectory

COPY, REFLINK = "copy", "reflink"
_COPIERS = {COPY: copy_data, REFLINK: clone_data}


class Choice(NamedTuple):
    """A back end, and where it keeps things: None for the state directory."""

    backend: str
    data_root: Path | None


class Backends:
    """Makes the ``Snapshots`` of workspaces; ``wanted`` is the configured back end."""

    def __init__(self, directory: StateDirectory, wanted: str) -> None:
        self._directory = directory
        self._wanted = wanted

    def choose(self, path: Path) -> Choice:
        """The back end for a new workspace (``OSError``)."""
        if self._wanted != COPY and can_clone(path, self._directory.snapshots):
            return Choice(REFLINK, None)
        return Choice(COPY, None)

    def snapshots(self, ws_id: str, path: Path, choice: Choice) -> Snapshots:
        """The snapshots of a workspace (``InternalError``: the back end is not known)."""
        copier = _COPIERS.get(choice.backend)
        if copier is None:
            raise InternalError(f"{path} has an unknown back end: {choice.backend}")
        bucket = self._directory.snapshots / ws_id
        return TreeSnapshots(choice.backend, ws_id, path, bucket, self._directory.index(ws_id) / "stamps", copier)

    @property
    def mount_path(self) -> Path:
        """Where snapshots are, as far as there is one place."""
        return self._directory.snapshots
