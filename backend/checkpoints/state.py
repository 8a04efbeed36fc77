"""The state directory: which workspaces there are, and where the rest of what is kept lies (spec 6.6; notes 2.3).

    state.json              the registered workspaces
    daemon.lock             held by the one daemon; its pid
    reserve                 space for the small files when the disk is full
    indexes/<ws_id>/        index.json (the catalogue), intent.json (what is being done), stamps
    snapshots/<ws_id>/      snapshots of the back ends that copy

Threads: any, under the lock of ``Registry``.
"""

import errno
import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from backend.checkpoints.errors import DaemonRunning
from backend.checkpoints.times import now_text
from backend.durable import DISK_FULL, make_private, write_durably
from backend.errors import StoreCorrupt

RESERVE_BYTES = 1 << 20

_LOCK = "daemon.lock"

log = logging.getLogger("ctxfs.checkpoints")

T = TypeVar("T")


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace in ``state.json``; ``data_root`` is where btrfs keeps its live tree and snapshots."""

    ws_id: str
    workspace_path: str
    registered_at: str
    origin_backend: str
    data_root: str | None = None


class _State(msgspec.Struct, kw_only=True):
    version: int = 1
    backend: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    workspaces: list[Registered] = []


class StateDirectory:
    """The paths in a state directory, and writing small files there even if its disk is full."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.snapshots = root / "snapshots"
        self.indexes = root / "indexes"
        self.registry = root / "state.json"
        self._reserve = root / "reserve"

    def prepare(self) -> None:
        """Makes the directories, and the reserve if there is space for it (``OSError``)."""
        if not self.root.is_dir():
            make_private(self.root)
        for directory in (self.snapshots, self.indexes):
            make_private(directory)
            directory.chmod(0o700)  # others' daemons leave it to everybody to read
        self._fill_reserve()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the directory against other daemons (``DaemonRunning``, ``OSError``)."""
        fd = self._at_the_cost_of_the_reserve(self._lock)
        try:
            yield
            (self.root / _LOCK).unlink(missing_ok=True)  # while it is held: who opens it next makes a new one
        finally:
            os.close(fd)

    def _lock(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self.root / _LOCK, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink == 0:  # the daemon that held it has ended just now, and the next one makes another
                raise BlockingIOError(errno.EWOULDBLOCK, "another daemon ends", str(self.root / _LOCK))
            if os.fstat(fd).st_size:
                log.info("the last daemon did not end as it should")
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(fd)
            if isinstance(error, BlockingIOError):
                raise DaemonRunning(f"another checkpoint daemon uses {self.root}") from None
            raise
        return fd

    def index(self, ws_id: str) -> Path:
        """The directory of what is known about a workspace."""
        return self.indexes / ws_id

    def has_workspaces_of(self, backend: str) -> bool:
        """Whether the state file, if it can be read, has workspaces of that back end."""
        with suppress(OSError, msgspec.MsgspecError):
            state = msgspec.json.decode(self.registry.read_bytes(), type=_State)
            return any(found.origin_backend == backend for found in state.workspaces)
        return False

    def save(self, path: Path, data: bytes) -> None:
        """``write_durably``; on a full disk at the cost of the reserve (``OSError``)."""
        self._at_the_cost_of_the_reserve(lambda: write_durably(path, data))

    def _at_the_cost_of_the_reserve(self, write: Callable[[], T]) -> T:
        """Once more without the reserve, if the disk is full (``OSError``)."""
        try:
            return write()
        except OSError as error:
            if error.errno not in DISK_FULL or not self._reserve.exists():
                raise
            self._reserve.unlink(missing_ok=True)
            written = write()
            self._fill_reserve()
            return written

    def _fill_reserve(self) -> None:
        with suppress(OSError):
            fd = os.open(self._reserve, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, RESERVE_BYTES)
            finally:
                os.close(fd)


class Registry:
    """The workspaces of ``state.json`` by id; every change is on disk when it returns (``OSError``: it is not made)."""

    def __init__(self, directory: StateDirectory) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._workspaces: dict[str, Registered] = {}

    def load(self) -> None:
        """Reads the file (``StoreCorrupt``: it is none; ``FileNotFoundError``)."""
        data = self._directory.registry.read_bytes()
        try:
            state = msgspec.json.decode(data, type=_State)
        except msgspec.MsgspecError as error:
            raise StoreCorrupt(f"{self._directory.registry}: {error}") from error
        root = state.paths.get("data_root")
        for found in state.workspaces:
            here = found.data_root or (root if found.origin_backend.startswith("Btrfs") else None)
            self._workspaces[found.ws_id] = msgspec.structs.replace(found, data_root=here)

    def all(self) -> list[Registered]:
        """The registered workspaces, in the order of their registration."""
        with self._lock:
            return list(self._workspaces.values())

    def has(self, ws_id: str) -> bool:
        return ws_id in self._workspaces

    def add(self, ws_id: str, path: str, backend: str, data_root: str | None) -> None:
        """Registers a workspace."""
        new = Registered(
            ws_id=ws_id, workspace_path=path, registered_at=now_text(), origin_backend=backend, data_root=data_root
        )
        with self._lock:
            self._replace({**self._workspaces, ws_id: new})

    def remove(self, ws_id: str) -> None:
        """Forgets a workspace."""
        with self._lock:
            self._replace({key: value for key, value in self._workspaces.items() if key != ws_id})

    def _replace(self, workspaces: dict[str, Registered]) -> None:
        state = _State(workspaces=list(workspaces.values()))
        data = msgspec.json.format(msgspec.json.encode(state), indent=2)
        self._directory.save(self._directory.registry, data + b"\n")
        self._workspaces = workspaces
