"""What a service manager hears of a daemon: ready once it answers, alive while it does, stopping once (spec 4.6)."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import PATIENCE_S, RunningMount, running_mount


class Manager:
    """Listens where the daemon tells."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(PATIENCE_S)

    def hears(self) -> list[str]:
        return self._socket.recv(4096).decode().split("\n")

    def rest(self) -> list[str]:
        """What was told already."""
        self._socket.setblocking(False)
        told: list[str] = []
        while True:
            try:
                told += self.hears()
            except BlockingIOError:
                return told

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def watched(fuse_device: None, tmp_path: Path) -> Iterator[tuple[RunningMount, Manager]]:
    manager = Manager(tmp_path / "notify")
    with running_mount() as mount:
        assert mount.stop() == 0
        mount.environment = mount.environment | {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "300000"}
        mount.start()
        yield mount, manager
    manager.close()


def test_ready_then_alive_then_stopping_once(watched: tuple[RunningMount, Manager]) -> None:
    mount, manager = watched
    assert manager.hears() == ["READY=1", f"STATUS=serving {mount.path}", f"MAINPID={mount.pid}"]
    assert (mount.path / "status").read_text()
    assert manager.hears() == ["WATCHDOG=1"]
    assert manager.hears() == ["WATCHDOG=1"]
    assert mount.stop() == 0
    assert manager.rest().count("STOPPING=1") == 1


def test_a_manager_that_is_gone_ends_nothing(watched: tuple[RunningMount, Manager]) -> None:
    mount, manager = watched
    assert manager.hears()[0] == "READY=1"
    manager.close()
    manager.path.unlink()
    assert (mount.path / "status").read_text()
    assert mount.stop() == 0
