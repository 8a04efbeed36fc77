"""``mountctl status``: every mount, in the JSON of spec 4.6; no state of a mount can hang it."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ctxfs import config, health
from ctxfs.runtime import RuntimeFiles
from tests.commands.conftest import Place, is_gone, stop
from tests.commands.running import Ran
from tests.mounting import wait_until

KEYS = [
    *("mountpoint", "state", "store", "pid", "version", "uptime_s"),
    *("sessions", "requests", "dropped_rests", "errors", "last_error"),
]


def entry(ran: Ran, place: Place) -> dict[str, Any]:
    """What one JSON value on stdout says of this mount."""
    (found,) = [mount for mount in json.loads(ran.out)["mounts"] if mount["mountpoint"] == str(place.mountpoint)]
    return dict(found)


def answered(place: Place) -> Ran:
    """``mountctl status --json`` once the daemon has had the time to answer."""
    while not entry(ran := place.mountctl("status", "--json"), place)["requests"]:
        pass
    return ran


def test_a_working_mount(place: Place) -> None:
    place.mount()
    (place.mountpoint / "home/0/agent/a").mkdir()
    (place.mountpoint / "home/0/agent/a/session/s").mkdir()
    with pytest.raises(FileNotFoundError):
        os.stat(place.mountpoint / "nothing")
    ran = answered(place)
    found = entry(ran, place)
    assert ran.err == ""
    assert list(found) == KEYS
    assert (found["state"], found["store"], found["pid"]) == ("ok", str(place.store), place.daemon())
    assert (found["sessions"], found["dropped_rests"], found["last_error"]) == (1, 0, None)
    assert found["requests"]["mkdir"] == 2 and found["errors"]["ENOENT"] >= 1
    assert isinstance(found["uptime_s"], int) and isinstance(found["version"], str)


def test_a_dropped_rest_is_counted(place: Place) -> None:
    place.mount()
    session = place.mountpoint / "home/0/agent/a/session/s"
    session.parent.parent.mkdir()
    session.mkdir()
    descriptor = os.open(session / "messages.jsonl", os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, b'{"role":')
    with pytest.raises(OSError, match="Invalid argument"):
        os.close(descriptor)
    wait_until(lambda: entry(place.mountctl("status", "--json"), place)["dropped_rests"] == 1, "the count")


def test_a_stopped_daemon(place: Place) -> None:
    place.mount()
    daemon = place.daemon()
    stop(daemon)
    ran = place.mountctl("status", "--json")
    os.kill(daemon, signal.SIGCONT)
    found = entry(ran, place)
    assert (found["state"], found["pid"]) == ("stopped", daemon)
    assert list(found) == KEYS


def test_a_dead_mount(place: Place) -> None:
    place.mount()
    daemon = place.kill()
    ran = place.mountctl("status", "--json")
    found = entry(ran, place)
    assert (ran.code, found["state"], found["pid"]) == (69, "dead", daemon)
    assert list(found) == KEYS


def test_a_mount_whose_daemon_nobody_knows_is_asked_itself(place: Place) -> None:
    place.mount()
    daemon = place.daemon()
    state_file = RuntimeFiles(place.runtime, str(place.mountpoint)).state
    state_file.rename(state_file.with_suffix(".away"))
    wait_until(lambda: entry(place.mountctl("status", "--json"), place)["state"] == "ok", "an answer in time")
    stop(daemon)
    states = [entry(place.mountctl("status", "--json"), place)["state"]]
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: is_gone(daemon), "the death of the daemon")
    states.append(entry(place.mountctl("status", "--json"), place)["state"])
    assert states == ["stopped", "dead"]


def test_a_daemon_that_was_started_before_its_user_logged_in_is_found(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.mount()
    mount = place.mounted()
    assert mount is not None
    with monkeypatch.context() as patched:
        patched.setattr(Path, "is_dir", lambda _: True)
        assert config.runtime_directories(4711) == [Path("/run/user/4711/ctxfs"), Path("/tmp/ctxfs-4711")]
    monkeypatch.setattr(health, "runtime_directories", lambda _: [place.base / "login/ctxfs", place.runtime])
    found = health.examine(mount, place.base / "elsewhere")
    assert found.daemon is not None and found.daemon.pid == place.daemon()


@pytest.mark.parametrize("state", ["ok", "stopped", "dead"])
def test_people_are_told_what_to_do_next(place: Place, state: str) -> None:
    place.mount()
    daemon = place.daemon()
    if state == "stopped":
        stop(daemon)
    elif state == "dead":
        place.kill()
    if state == "ok":
        answered(place)
    out = place.mountctl("status").out
    expected = {"ok": str(place.store), "stopped": f"kill -CONT {daemon}", "dead": f"mountctl mount {place.mountpoint}"}
    assert f"{place.mountpoint}  {state}" in out and expected[state] in out


def test_people_see_how_often_the_daemon_s_caches_knew(place: Place) -> None:
    place.mount()
    (place.mountpoint / "home/0/agent/a").mkdir()

    def told() -> bool:
        paragraphs = place.mountctl("status").out.split("\n\n")
        [own] = [one for one in paragraphs if one.startswith(f"{place.mountpoint}  ")]
        return re.search(r"caches +contents \d+ of \d+ hits, sessions \d+ of \d+ hits\n", own) is not None

    wait_until(told, "an answer in time")


def test_a_bind_mount_of_it_is_the_same_mount(place: Place) -> None:
    place.mount()
    (place.base / "bound").mkdir()
    subprocess.run(["mount", "--bind", place.mountpoint, place.base / "bound"], check=True)
    mounts = json.loads(place.mountctl("status", "--json").out)["mounts"]
    assert [mount["mountpoint"] for mount in mounts if str(place.base) in mount["mountpoint"]] == [
        str(place.mountpoint)
    ]
