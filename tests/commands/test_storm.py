"""Start, stop, kill, restart under load, by an admin's commands: no accepted line is ever lost (spec 1.3, 4.6)."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.commands.conftest import Place, is_gone
from tests.mount.acting import message, new_session, write_once
from tests.mounting import wait_until

WRITERS = 4


class Writer(threading.Thread):
    """Appends numbered lines, each by an open of its own, until it is told, or there is no mount; ``accepted`` many."""

    def __init__(self, log: Path, name: str, over: threading.Event) -> None:
        super().__init__()
        self._over = over
        self._log = log
        self.writer = name
        self.accepted = 0

    def run(self) -> None:
        try:
            while not self._over.is_set():
                write_once(self._log, message(f"{self.writer} {self.accepted}"))
                self.accepted += 1
        except OSError:
            return


def have_begun(writers: list[Writer]) -> bool:
    return all(writer.accepted for writer in writers)


def by_umount(place: Place, over: threading.Event) -> None:
    """Busy, as a rule, until the writers have ended."""
    if place.umount().code != 0:
        assert place.mounted() is not None
        over.set()
        wait_until(lambda: place.umount().code == 0, "the unmount")


def by_lazy_umount(place: Place, over: threading.Event) -> None:
    assert place.umount("--lazy").code == 0


def by_sigterm(place: Place, over: threading.Event) -> None:
    daemon = place.daemon()
    os.kill(daemon, signal.SIGTERM)
    wait_until(lambda: is_gone(daemon), "the end of the daemon")


def by_sigkill(place: Place, over: threading.Event) -> None:
    place.kill()


ENDINGS: list[Callable[[Place, threading.Event], None]] = [
    by_umount,
    by_sigkill,
    by_lazy_umount,
    by_sigterm,
    by_sigkill,
]


def lines(log: Path) -> dict[str, list[int]]:
    """The numbers of each writer's lines; every line is whole."""
    found: dict[str, list[int]] = {}
    for line in log.read_bytes().splitlines(keepends=True):
        assert line.endswith(b"\n")
        writer, number = json.loads(line)["content"].split()
        found.setdefault(writer, []).append(int(number))
    return found


@pytest.mark.limit(3600)
@pytest.mark.parametrize("turns", [len(ENDINGS), pytest.param(50, marks=pytest.mark.longer)])
def test_no_accepted_line_is_lost_however_often_it_ends(place: Place, turns: int) -> None:
    assert place.mount().code == 0
    logs = [new_session(place.mountpoint) / "messages.jsonl" for _ in range(2)]
    accepted: dict[str, int] = {}
    for turn in range(turns):
        daemon, over = place.daemon(), threading.Event()
        writers = [Writer(logs[number % 2], f"r{turn}w{number}", over) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        wait_until(partial(have_begun, writers), "a line of each")
        ENDINGS[turn % len(ENDINGS)](place, over)
        assert is_gone(daemon)
        for writer in writers:
            writer.join()
            accepted[writer.writer] = writer.accepted
        assert place.mount().code == 0
    found = lines(logs[0]) | lines(logs[1])
    assert found.keys() == accepted.keys()
    for name, numbers in found.items():
        # The last one may have been stored without its answer having arrived.
        assert numbers in (list(range(accepted[name])), list(range(accepted[name] + 1)))
    assert place.umount().code == 0
    assert place.mountctl("doctor", "--store", str(place.store)).code == 0


@pytest.mark.parametrize("options", [(), ("--lazy",)])
def test_of_several_unmounts_at_once_none_says_done_before_it_is(place: Place, options: tuple[str, ...]) -> None:
    assert place.mount().code == 0
    daemon = place.daemon()
    command = [sys.executable, "-m", "mountctl.main", "umount", str(place.mountpoint), *options]
    racing = [subprocess.Popen(command, env=place.environment, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    codes = []
    for process in racing:
        _, complaint = process.communicate(timeout=100)
        codes.append(process.returncode)
        assert process.returncode == 0 or "is not mounted" in complaint
        if process.returncode == 0:
            assert (place.mounted(), is_gone(daemon)) == (None, True)
    assert 0 in codes
    assert place.mount().code == 0


def test_of_several_mounts_of_one_store_at_once_one_gets_it(place: Place) -> None:
    points = [place.base / f"ctx{number}" for number in range(3)]
    racing = [
        subprocess.Popen(
            [sys.executable, "-m", "mountctl.main", "mount", str(point), "--store", str(place.store)],
            env=place.environment,
            stderr=subprocess.DEVNULL,
        )
        for point in points
    ]
    codes = [process.wait(100) for process in racing]
    assert sorted(codes) == [0, 7, 7]
    # Whoever did not get it left nothing.
    assert [point.exists() for point in points] == [code == 0 for code in codes]
    assert place.mountctl("umount", str(points[codes.index(0)])).code == 0
