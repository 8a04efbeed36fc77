"""``sessions``: what the files of an agent's sessions say, at once, to who may read them (spec 1.9, 4.1)."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mounting import RunningMount
from tests.people import ALICE, BOB, Person
from tests.socket.client import Client, answer

HELLO = b'{"role":"user","content":"hello"}\n'


@pytest.fixture
def sessions(served: RunningMount) -> Iterator[Path]:
    """Alice's: one that was written to, a branch of it, and one with a cwd."""
    path = served.path / f"home/{ALICE.uid}/agent/listed/session"
    if not path.exists():
        ALICE.does(path.parent.mkdir)
        for name in ("one", "two"):
            ALICE.does((path / name).mkdir)
        ALICE.does((path / "one/messages.jsonl").write_bytes, HELLO)
        ALICE.does(os.setxattr, path / "one", "user.ctx.branch", b"three")
        ALICE.does((path / "two/cwd").write_bytes, "/w/é".encode())
        ALICE.does((path / "two/state").write_bytes, b"done")
    yield path


def asked(ctx_sock: Path, **fields: Any) -> list[dict[str, Any]]:
    client = Client(ctx_sock)
    client.send(json.dumps({"op": "sessions", **fields}).encode() + b"\n")
    frames = [client.frame()]
    while frames[-1]["type"] == "session":
        frames.append(client.frame())
    client.close()
    return frames


def by_files(session: Path) -> dict[str, Any]:
    def value(name: str) -> str:
        return (session / name).read_text().removesuffix("\n")

    def attribute(name: str) -> str | None:
        try:
            return os.getxattr(session, f"user.ctx.{name}").decode()
        except OSError:
            return None

    at = attribute("at")
    return {
        "type": "session",
        "name": session.name,
        "id": attribute("uuid"),
        "state": value("state"),
        "created_at": int(value("created_at")),
        "updated_at": int(value("updated_at")),
        "entries": int(attribute("n") or ""),
        "size": sum((session / name).stat().st_size for name in ("messages.jsonl", "events.jsonl")),
        "cwd": value("cwd"),
        "parent": attribute("parent"),
        "at": None if at is None else int(at),
        "uid": session.stat().st_uid,
    }


def test_each_session_is_what_its_files_say_and_seq_is_the_order_of_the_list(sessions: Path, ctx_sock: Path) -> None:
    *frames, end = ALICE.does(asked, ctx_sock, agent="listed")
    assert end == {"type": "end", "sessions": 3}
    listed = [frame["name"] for frame in sorted(frames, key=lambda frame: frame["seq"], reverse=True)]
    assert listed == (sessions / "index/list").read_text().split()
    for frame in frames:
        del frame["seq"]
    assert frames == [by_files(sessions / name) for name in ("one", "two", "three")]


def test_it_is_more_than_a_page(served: RunningMount, ctx_sock: Path) -> None:
    directory = served.path / f"home/{ALICE.uid}/agent/many/session"
    ALICE.does(directory.parent.mkdir)
    for number in range(250):
        ALICE.does((directory / f"s{number}").mkdir)
    *frames, end = ALICE.does(asked, ctx_sock, agent="many")
    assert end["sessions"] == 250
    assert [frame["name"] for frame in frames] == [f"s{number}" for number in range(250)]


@pytest.mark.parametrize(
    ("person", "fields", "code"),
    [
        (BOB, {"home": ALICE.uid}, "EACCES"),
        (BOB, {}, "ENOENT"),
        (ALICE, {"agent": "nobody"}, "ENOENT"),
        (ALICE, {"agent": "a/b"}, "EINVAL"),
        (ALICE, {"agent": None}, "EINVAL"),
        (ALICE, {"space": "nowhere"}, "ENOENT"),
    ],
)
def test_who_may_not_ask_and_what_is_not_there(
    sessions: Path, ctx_sock: Path, person: Person, fields: dict[str, Any], code: str
) -> None:
    frame = person.does(answer, ctx_sock, "sessions", **({"agent": "listed"} | fields))
    assert frame["code"] == code


def test_root_asks_for_any_home(sessions: Path, ctx_sock: Path) -> None:
    assert asked(ctx_sock, agent="listed", home=ALICE.uid)[-1] == {"type": "end", "sessions": 3}
