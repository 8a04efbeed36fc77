"""What a service manager hears of a daemon: ready once it answers, alive while it does, stopping once (spec 4.6)."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxfs.service_manager import ServiceManager
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
    with running_mount(module="tests.faulty_daemon") as mount:
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


def test_a_store_that_cannot_say_how_it_is_has_answered(watched: tuple[RunningMount, Manager]) -> None:
    mount, manager = watched
    assert manager.hears()[0] == "READY=1"
    (mount.base / "fault").write_text("figures")
    assert [manager.hears() for _ in range(3)] == [["WATCHDOG=1"]] * 3
    (mount.base / "fault").unlink()


def test_a_manager_that_is_gone_ends_nothing(watched: tuple[RunningMount, Manager]) -> None:
    mount, manager = watched
    assert manager.hears()[0] == "READY=1"
    manager.close()
    manager.path.unlink()
    assert (mount.path / "status").read_text()
    assert mount.stop() == 0


@pytest.mark.parametrize("form", ["{}/notify", "{}/user@1000", "@{}"])
def test_every_kind_of_address_is_told(tmp_path: Path, form: str) -> None:
    address = form.format(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{tmp_path}" if form == "@{}" else address)
        manager.settimeout(PATIENCE_S)
        ServiceManager({"NOTIFY_SOCKET": address}).stopping()
        assert manager.recv(4096).startswith(b"STOPPING=1\n")


@pytest.mark.parametrize(
    ("environment", "watchdog_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "300000"}, 0.3),
        ({"WATCHDOG_USEC": "300000", "WATCHDOG_PID": str(os.getpid())}, 0.3),
        ({"WATCHDOG_USEC": "300000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_a_watchdog_is_told_only_by_whom_it_watches(environment: dict[str, str], watchdog_s: float | None) -> None:
    assert ServiceManager(environment).watchdog_s == watchdog_s
