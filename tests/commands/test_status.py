"""``mountctl status``: every mount, in the JSON of spec 4.6; no state of a mount can hang it."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import Place
from tests.commands.running import Ran
from tests.commands.test_umount import is_gone, stop
from tests.mounting import wait_until

KEYS = [
    *("mountpoint", "state", "store", "pid", "version", "uptime_s"),
    *("sessions", "requests", "dropped_rests", "errors", "last_error"),
]


def entry(ran: Ran, place: Place) -> dict[str, Any]:
    """What one JSON value on stdout says of this mount."""
    (found,) = [mount for mount in json.loads(ran.out)["mounts"] if mount["mountpoint"] == str(place.mountpoint)]
    return dict(found)


def test_a_working_mount(place: Place) -> None:
    place.mount()
    (place.mountpoint / "home/0/agent/a").mkdir()
    (place.mountpoint / "home/0/agent/a/session/s").mkdir()
    with pytest.raises(FileNotFoundError):
        os.stat(place.mountpoint / "nothing")
    ran = place.mountctl("status", "--json")
    found = entry(ran, place)
    assert (ran.code, ran.err) == (0, "")
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
    assert (ran.code, found["state"], found["pid"]) == (0, "stopped", daemon)
    assert list(found) == KEYS


def test_a_dead_mount(place: Place) -> None:
    place.mount()
    daemon = place.daemon()
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: is_gone(daemon), "the death of the daemon")
    ran = place.mountctl("status", "--json")
    found = entry(ran, place)
    assert (ran.code, found["state"], found["pid"]) == (69, "dead", daemon)
    assert list(found) == KEYS


def test_a_mount_whose_daemon_nobody_knows_is_asked_itself(place: Place) -> None:
    place.mount()
    daemon = place.daemon()
    for file in Path(place.runtime).glob("*.json"):
        file.unlink()
    states = [entry(place.mountctl("status", "--json"), place)["state"]]
    stop(daemon)
    states.append(entry(place.mountctl("status", "--json"), place)["state"])
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: is_gone(daemon), "the death of the daemon")
    states.append(entry(place.mountctl("status", "--json"), place)["state"])
    assert states == ["ok", "stopped", "dead"]


@pytest.mark.parametrize("state", ["ok", "stopped", "dead"])
def test_people_are_told_what_to_do_next(place: Place, state: str) -> None:
    place.mount()
    daemon = place.daemon()
    if state == "stopped":
        stop(daemon)
    elif state == "dead":
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: is_gone(daemon), "the death of the daemon")
    out = place.mountctl("status").out
    expected = {"ok": str(place.store), "stopped": f"kill -CONT {daemon}", "dead": f"mountctl mount {place.mountpoint}"}
    assert f"{place.mountpoint}  {state}" in out and expected[state] in out


def test_a_bind_mount_of_it_is_the_same_mount(place: Place) -> None:
    place.mount()
    (place.base / "bound").mkdir()
    os.system(f"mount --bind {place.mountpoint} {place.base / 'bound'}")
    mounts = json.loads(place.mountctl("status", "--json").out)["mounts"]
    assert [mount["mountpoint"] for mount in mounts if str(place.base) in mount["mountpoint"]] == [
        str(place.mountpoint)
    ]
