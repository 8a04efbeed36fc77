"""A running checkpoint daemon in one line, on a disk of the kind that a back end needs, and requests to it.

A daemon is shared by a module's tests, each of which has workspaces of its own; what the daemon logs as a warning
must have been announced with ``allow``.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest

from backend.checkpoints import wire
from backend.checkpoints.bincode import WireError
from tests.crash.disks import need_loop_devices
from tests.mounting import PATIENCE_S, PROJECT, SCRATCH
from tests.people import ROOT, Person

Kind = Literal["copy", "reflink", "btrfs", "btrfs-loop"]
KINDS: tuple[Kind, ...] = ("copy", "reflink", "btrfs", "btrfs-loop")
MIB = 1 << 20
TIMEOUT_S = PATIENCE_S

_MAKERS = {
    "copy": ["mkfs.ext4", "-q", "-F", "-m", "0"],
    "reflink": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}
_SIZES = {"copy": 256 * MIB, "reflink": 320 * MIB, "btrfs": 400 * MIB}

T = TypeVar("T")


class CheckpointDaemon:
    """``mountctl checkpointd`` on ``socket``; workspaces are made below ``area``."""

    def __init__(self, base: Path, area: Path, state: Path, *arguments: str) -> None:
        self.base = base
        self.area = area
        self.state = state
        self.socket = base / "socket"
        self.config = base / "config.toml"
        self.log = base / "daemon.log"
        self.arguments = arguments
        self.allowed: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None
        self._number = 0

    def start(self) -> None:
        """Returns when it answers."""
        command = [sys.executable, "-m", "mountctl.main", "checkpointd", "--socket", str(self.socket)]
        places = ["--state-dir", str(self.state), "--config", str(self.config)]
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *places, *self.arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        deadline = time.monotonic() + TIMEOUT_S
        while not self.answers():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, "the daemon does not answer"
            time.sleep(0.01)

    def answers(self) -> bool:
        """Whether it takes connections."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        return True

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(TIMEOUT_S)

    def restart(self) -> None:
        assert self.stop() == 0, self.log.read_text()
        self.start()

    def allow(self, pattern: str) -> None:
        """Log lines that match this may be warnings."""
        self.allowed.append(pattern)

    def complaints(self) -> list[str]:
        """Warnings and errors that no test announced."""
        lines = self.log.read_text(errors="replace").splitlines()
        bad = [line for line in lines if not re.search(r" (DEBUG|INFO) ", line)]
        return [line for line in bad if not any(re.search(pattern, line) for pattern in self.allowed)]

    def new_workspace(self, owner: int = 0) -> Path:
        """An ordinary directory with a file in it, not registered yet."""
        self._number += 1
        path = self.area / f"w{self._number}"
        path.mkdir()
        (path / "file").write_text("first\n")
        for each in (path, path / "file"):
            os.chown(each, owner, owner)
        return path

    def ask(self, request: wire.Request, person: Person = ROOT) -> wire.Response:
        """The response to a request."""
        if person is ROOT:
            return exchange(self.socket, request)
        return person.does(exchange, self.socket, request)

    def expect(self, kind: type[T], request: wire.Request, person: Person = ROOT) -> T:
        """The response, which must be of this kind."""
        response = self.ask(request, person)
        assert isinstance(response, kind), response
        return response

    def refuses(self, code: str, words: str, request: wire.Request, person: Person = ROOT) -> None:
        """Claims that a request is answered with this error code and a message that has these words."""
        response = self.expect(wire.Error, request, person)
        assert (response.code.name, words in response.message) == (code, True), response

    def init(self, workspace: Path) -> str:
        return self.expect(wire.InitOk, wire.Init(str(workspace))).ws_id

    def checkpoint(self, workspace: Path, id: str, **more: Any) -> None:
        self.expect(wire.CheckpointOk, wire.Checkpoint(str(workspace), id, **more))

    def rollback(self, workspace: Path, id: str) -> None:
        self.expect(wire.RollbackOk, wire.Rollback(str(workspace), id))

    def ids(self, workspace: Path) -> list[str]:
        return [entry.id for entry in self.expect(wire.ListOk, wire.List(str(workspace))).snapshots]


class Writer(threading.Thread):
    """Appends to a file every few milliseconds, which stays open, until it is stopped; also on a busy machine."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._stopped = threading.Event()
        self._begun = threading.Event()

    def run(self) -> None:
        with contextlib.suppress(OSError):  # what is kept from the processor for 0.1 s has ended, as far as one can see
            os.sched_setscheduler(threading.get_native_id(), os.SCHED_FIFO, os.sched_param(1))
        with self._file.open("a", buffering=1) as file:
            while not self._stopped.wait(0.005):
                file.write("line\n")
                self._begun.set()

    def __enter__(self) -> None:
        self.start()
        self._begun.wait()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()


class Asker(threading.Thread):
    """Asks for one thing of a daemon that may be killed meanwhile; ``answer`` stays None then."""

    def __init__(self, path: Path, request: wire.Request) -> None:
        super().__init__()
        self._path = path
        self._request = request
        self.answer: wire.Response | None = None

    def run(self) -> None:
        with contextlib.suppress(OSError, WireError):
            self.answer = exchange(self._path, self._request)


def exchange(path: Path, request: wire.Request) -> wire.Response:
    """One request on a connection of its own."""
    return wire.decode_response(raw_exchange(path, wire.frame(wire.encode_request(request)))[4:])


def raw_exchange(path: Path, sent: bytes) -> bytes:
    """All that comes back for some bytes, after which nothing more is sent."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(path))
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return receive_all(connection)


def receive_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    received = bytearray()
    while chunk := connection.recv(MIB):
        received += chunk
    return bytes(received)


@contextlib.contextmanager
def checkpoint_daemon(kind: Kind, *arguments: str, size: int | None = None) -> Iterator[CheckpointDaemon]:
    """A daemon whose workspaces get that back end, and a disk for them."""
    with scratch() as base:
        if kind == "btrfs-loop":
            daemon = CheckpointDaemon(base, base / "area", base / "var/state", *_loop_arguments(base), *arguments)
            daemon.area.mkdir()
            (base / "config.toml").write_text("[backend.btrfs-loop]\nimg_size = 1\n")
            with running(daemon), _unmounted(base / "loop"):
                yield daemon
            return
        with disk(kind, base, size) as mounted:
            state = (base if kind == "btrfs" else mounted) / "var/state"
            daemon = CheckpointDaemon(base, mounted / "area", state, *arguments)
            daemon.area.mkdir()
            with running(daemon):
                yield daemon


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory that other users can reach, removed with what is in it; in memory, where nothing waits for a disk."""
    base = Path(tempfile.mkdtemp(prefix="ctxfs-test-", dir=_memory() or SCRATCH))
    base.chmod(0o755)
    try:
        yield base
    finally:
        shutil.rmtree(base)


@contextlib.contextmanager
def disk(kind: Kind, base: Path, size: int | None = None) -> Iterator[Path]:
    """A small disk of the file system that a back end needs."""
    need_loop_devices()
    maker = _MAKERS[kind]
    if shutil.which(maker[0]) is None:
        pytest.skip(f"needs {maker[0]}")
    mounted = base / "disk"
    mounted.mkdir()
    with tempfile.NamedTemporaryFile(dir=base) as image:
        image.truncate(size or _SIZES[kind])
        subprocess.run([*maker, image.name], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["mount", "-o", "loop", image.name, mounted], check=True)
        mounted.chmod(0o755)
        with _unmounted(mounted):
            yield mounted


def _memory() -> Path | None:
    """A directory of which files are memory, if there is enough of it."""
    place = Path("/dev/shm")
    return place if place.is_dir() and shutil.disk_usage(place).free > 2048 * MIB else None


@contextlib.contextmanager
def running(daemon: CheckpointDaemon) -> Iterator[None]:
    """Starts a daemon; at the end it must stop, and must not have complained."""
    daemon.start()
    try:
        yield
        assert daemon.process is not None
        if daemon.process.poll() is None:
            assert daemon.stop() == 0, daemon.log.read_text()
        assert not (complaints := daemon.complaints()), "\n".join(complaints)
    finally:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.kill()


def _loop_arguments(base: Path) -> list[str]:
    return ["--backend", "btrfs-loop", "--mount-path", str(base / "loop")]


@contextlib.contextmanager
def _unmounted(mountpoint: Path) -> Iterator[None]:
    """Unmounts at the end, whatever still uses it; that something does is a failure."""
    try:
        yield
    finally:
        if subprocess.run(["umount", mountpoint], check=False).returncode:
            subprocess.run(["umount", "--lazy", mountpoint], check=True)
            raise AssertionError(f"{mountpoint} is still used by a process")
