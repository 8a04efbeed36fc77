"""What is being done to a workspace, on disk before it begins, so that a start after a crash can finish it (spec 6.6).

Every intent says enough to tell from the disk whether its operation took place:

===============  ============================================  =======================================================
intent           it took place if                              then
===============  ============================================  =======================================================
``Taking``       the snapshot is there                         its record is added
``Deleting``     the snapshot is gone                          its record goes
``Restoring``    the new tree is live, or the old one aside    its identity is kept, what was there before goes
``Adopting``     the path leads to the live tree               the workspace is registered, the original goes
``Releasing``    the announced directory stands at the path    the workspace, its snapshots and its index go
===============  ============================================  =======================================================

Where that cannot be told, for a disk is not mounted or somebody moved things, the intent waits for the next operation
or start.
"""

from pathlib import Path

import msgspec

from backend.checkpoints.catalogue import Record
from backend.checkpoints.identity import Identity
from backend.checkpoints.state import StateDirectory
from backend.durable import sync_directory


class _Intent(msgspec.Struct, frozen=True, tag_field="doing"):
    """What is being done."""


class Taking(_Intent, frozen=True, tag="checkpoint"):
    """A snapshot, and the record that it will have."""

    id: str
    record: Record


class Deleting(_Intent, frozen=True, tag="delete"):
    """A snapshot that goes."""

    id: str


class Restoring(_Intent, frozen=True, tag="rollback"):
    """The directory that the workspace becomes, and the one that it was."""

    new: Identity
    old: Identity | None


class Adopting(_Intent, frozen=True, tag="init"):
    """A workspace that moves to the back end, the directory that it was, and what was the live tree before it."""

    path: str
    backend: str
    data_root: str | None
    old: Identity
    live: Identity | None


class Releasing(_Intent, frozen=True, tag="recover"):
    """The ordinary directory that the workspace becomes, or is."""

    new: Identity


Intent = Taking | Deleting | Restoring | Adopting | Releasing

_decoder = msgspec.json.Decoder(Intent)


class Journal:
    """The intent of one workspace, if there is one."""

    def __init__(self, directory: StateDirectory, ws_id: str) -> None:
        self._directory = directory
        self._file: Path = directory.index(ws_id) / "intent.json"

    def begin(self, intent: Intent) -> None:
        """Writes down what is about to be done (``OSError``)."""
        self._directory.save(self._file, msgspec.json.encode(intent) + b"\n")

    def end(self) -> None:
        """It is done, or undone."""
        self._file.unlink(missing_ok=True)
        sync_directory(self._file.parent)

    def read(self) -> Intent | None:
        """What was being done when a daemon died; an intent that cannot be read was never begun."""
        try:
            return _decoder.decode(self._file.read_bytes())
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
