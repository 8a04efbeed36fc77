"""Sockets come and go while the mount is served (spec 3.1): in their places, for whom they are, again and again."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mounting import RunningMount, running_mount
from tests.people import ALICE, BOB, ROOT, Person, chroot_with, outcome
from tests.socket.client import Client, connected

DONE = {"type": "done"}
LONG = "m" * 64


@pytest.fixture(scope="module")
def served(fuse_device: None) -> Iterator[RunningMount]:
    with running_mount(module="tests.socket_daemon") as mount:
        for provider in ("acme", LONG):
            (mount.path / "model" / provider).mkdir()
        yield mount


def order(mount: RunningMount, operation: str, name: str, **more: Any) -> dict[str, Any]:
    with connected(mount.path / "agent/ctx.sock") as client:
        return client.ask(operation, name=name, **more)


def hello(path: Path) -> dict[str, Any]:
    with connected(path) as client:
        client.send(b"hello\n")
        return client.frame()


@pytest.mark.parametrize(
    ("place", "fields"),
    [("agent/coder.sock", {"name": "coder"}), ("model/acme/m1.sock", {"name": "m1", "provider": "acme"})],
)
def test_one_is_opened_where_it_belongs_and_closed_again(
    served: RunningMount, place: str, fields: dict[str, Any]
) -> None:
    path = served.path / place
    for _ in range(20):
        assert outcome(path.lstat) == "ENOENT"
        assert order(served, "open", **fields) == DONE
        client = Client(path)
        client.send(b"hi\n")
        assert client.frame() == {"uid": 0, "said": "hi"}
        assert path.name in [child.name for child in path.parent.iterdir()]
        assert order(served, "close", **fields) == DONE
        assert client.frame() == {}
        client.close()
        assert outcome(hello, path) == "ENOENT"
    assert order(served, "close", **fields) == DONE


def test_a_long_name_fits(served: RunningMount, tmp_path: Path) -> None:
    assert order(served, "open", LONG, provider=LONG) == DONE
    with chroot_with(served.path, tmp_path / "root") as root:
        shut_in = Person(1001, 1001, root=root)
        # 107 bytes are all that an address holds: a client goes near.
        assert shut_in.does(hello_from, Path("/ctx/model") / LONG, f"{LONG}.sock") == {"uid": 1001, "said": "hello"}


def hello_from(directory: Path, name: str) -> dict[str, Any]:
    os.chdir(directory)
    return hello(Path(name))


def test_an_owners_is_for_the_owner_and_root(served: RunningMount) -> None:
    path = served.path / "agent/alices.sock"
    assert order(served, "open", "alices", uid=ALICE.uid) == DONE
    status = path.lstat()
    assert (stat.filemode(status.st_mode), status.st_uid) == ("srw-------", ALICE.uid)
    assert ALICE.does(hello, path)["uid"] == ALICE.uid
    assert ROOT.does(hello, path)["uid"] == 0
    assert BOB.outcome(hello, path) == "EACCES"


def test_a_name_is_taken_once(served: RunningMount) -> None:
    assert order(served, "open", "once") == DONE
    assert order(served, "open", "once")["code"] == "EADDRINUSE"
    assert hello(served.path / "agent/once.sock")["said"] == "hello"


def test_where_there_is_no_directory_there_is_no_socket(served: RunningMount) -> None:
    assert order(served, "open", "x", provider="nowhere")["code"] == "ENOENT"
