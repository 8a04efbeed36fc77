"""``ctx doctor`` says what is wrong and where, and nothing else (spec 4.1, 2.7; field reports 3, 14, 23)."""

import contextlib
import json
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.commands.conftest import Agent, Place
from tests.commands.terminal import on_terminal
from tests.crash.disks import MIB, mount_on_disk, need_loop_devices
from tests.mounting import RunningMount, running_mount

HELLO = b'{"role":"user","content":"hello"}\n'


def filled(agent: Agent) -> None:
    agent.new("one", "two")
    agent.say("one", "user", "hello")
    agent.say("one", "assistant", "hi")
    (agent.directory / "one/cwd").write_text("/srv\n")
    (agent.directory / "one/state").write_text("done\n")
    (agent.directory / "index/by-hash/h1").write_text("one\n")
    agent.say("two", "user", "there")


def faults(agent: Agent, *arguments: str, code: int = 1) -> list[dict[str, Any]]:
    ran = agent.run("doctor", *arguments, "--json")
    assert (ran.code, ran.err) == (code, "")
    found: list[dict[str, Any]] = json.loads(ran.out)["faults"]
    return found


def test_where_nothing_is_wrong_it_says_how_much_it_read(agent: Agent) -> None:
    filled(agent)
    assert agent.run("doctor", agent.name) == (0, "2 sessions, 5 entries: nothing is wrong\n", "")
    assert agent.run("doctor", agent.name, "-s", "two") == (0, "1 session, 1 entry: nothing is wrong\n", "")
    ran = agent.run("doctor", agent.name, "--json")
    assert json.loads(ran.out) == {"faults": [], "sessions": 2, "entries": 5}
    assert agent.run("doctor").code == 0
    assert on_terminal(agent, "doctor", agent.name) == "2 sessions, 5 entries: \x1b[32mnothing is wrong\x1b[0m\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("doctor", "-s", "one"), 2),
        (("doctor", "../x"), 2),
        (("doctor", "AGENT", "-s", "a/b"), 2),
        (("doctor", "AGENT", "-s", "nothing"), 1),
        (("doctor", "nobody"), 1),
        (("doctor", "--space", "nowhere"), 1),
    ],
)
def test_a_refusal_has_its_code(agent: Agent, arguments: tuple[str, ...], code: int) -> None:
    agent.new("one")
    ran = agent.run(*(agent.name if word == "AGENT" else word for word in arguments))
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("ctx: ") and ran.err.count("\n") == 1


def test_without_a_mount_it_says_so(place: Place) -> None:
    assert place.ctx("doctor").code == 69


@pytest.fixture
def plain(fuse_device: None) -> Iterator[RunningMount]:
    """A mount of plain files."""
    with running_mount("jsonl") as mount:
        yield mount


BAD_LINES = {
    "garbage in the middle": (HELLO + b"garbage\n" + HELLO, [(2, len(HELLO), "it is not one JSON object")]),
    "a blank line": (HELLO + b"\n" + HELLO, [(2, len(HELLO), "it is blank")]),
    "not UTF-8": (b'{"role":"\xff"}\n' + HELLO, [(1, 0, "it is not UTF-8")]),
    "no newline at the end": (HELLO * 3 + b'{"role":', [(4, 3 * len(HELLO), "the newline at its end is missing")]),
    "several": (
        b"x\n" + HELLO + b"\n" + HELLO + b"[1]\n" + HELLO[:-1],
        [
            (1, 0, "it is not one JSON object"),
            (3, 2 + len(HELLO), "it is blank"),
            (5, 3 + 2 * len(HELLO), "it is not one JSON object"),
            (6, 7 + 2 * len(HELLO), "the newline at its end is missing"),
        ],
    ),
}


@pytest.mark.parametrize(("content", "lines"), BAD_LINES.values(), ids=BAD_LINES)
@pytest.mark.parametrize("foreign", [True, False])
def test_each_malformed_line_is_named_with_its_file_and_offset(
    plain: RunningMount, content: bytes, lines: list[tuple[int, int, str]], foreign: bool
) -> None:
    """Field report 3: later lines are served, doctor says where the bad ones are."""
    agent = Agent(plain, "coder")
    agent.new("good", "bad")
    agent.say("good", "user", "hello")
    (agent.directory / "bad/messages.jsonl").write_bytes(HELLO)
    assert plain.stop() == 0
    [file] = [path for path in plain.store.rglob("messages.jsonl") if path.parent.name == "bad"]
    if foreign:
        for path in (file.parent / ".store").iterdir():
            path.unlink()
        (file.parent / ".store").rmdir()
    file.write_bytes(content)
    plain.start()
    assert (agent.directory / "bad/messages.jsonl").read_bytes() == content
    log = "agent/coder/session/bad/messages.jsonl"
    found = faults(agent, "coder")
    assert [(fault["line"], fault["offset"], fault["reason"]) for fault in found] == lines
    assert {(fault["check"], fault["path"]) for fault in found} == {("line", log)}
    *said, _ = agent.run("doctor").out.splitlines()
    assert said == [f"{log}:{number}: byte {offset}: {reason}" for number, offset, reason in lines]
    assert (agent.directory / "bad/messages.jsonl").read_bytes() == content


def test_a_history_that_does_not_fit_its_order_is_named(plain: RunningMount) -> None:
    agent = Agent(plain, "coder")
    agent.new("bad")
    agent.say("bad", "user", "hello")
    assert plain.stop() == 0
    [file] = plain.store.rglob("bad/messages.jsonl")
    file.write_bytes(HELLO + HELLO)
    plain.start()
    [fault] = faults(agent)
    assert (fault["check"], fault["path"]) == ("history", "agent/coder/session/bad")
    assert "messages.jsonl line" in fault["reason"]


SESSION = "agent/coder/session/one"
INDEX = "agent/coder/session/index"
DRIFT: dict[str, tuple[str, str, str]] = {
    "state": ("UPDATE session SET state = 'active' WHERE name = 'one'", "facts", f"{SESSION}/state"),
    "cwd": ("UPDATE session SET cwd = '/elsewhere' WHERE name = 'one'", "facts", f"{SESSION}/cwd"),
    "latest": ("UPDATE session SET latest_size = latest_size + 1 WHERE name = 'one'", "facts", f"{SESSION}/latest.md"),
    "updated_at": ("UPDATE session SET updated_at = updated_at + 1000", "facts", f"{SESSION}/updated_at"),
    "meta": ("UPDATE session SET meta = '{}' WHERE name = 'one'", "facts", f"{SESSION}/meta.json"),
    "list size": ("UPDATE owner SET list_size = list_size + 3", "index", f"{INDEX}/list"),
    "order": ("UPDATE session SET listed = 1 - listed", "index", f"{INDEX}/list"),
    "current": ("UPDATE owner SET current = 'gone'", "index", f"{INDEX}/current"),
    "by-cwd": ("DELETE FROM mapping WHERE kind = 'by-cwd'", "index", f"{INDEX}/by-cwd/"),
}


@pytest.mark.parametrize(("sql", "check", "path"), DRIFT.values(), ids=DRIFT)
def test_planted_drift_is_found(fuse_device: None, sql: str, check: str, path: str) -> None:
    """Field report 14."""
    with running_mount() as mount:
        agent = Agent(mount, "coder")
        filled(agent)
        agent.new("three")
        assert mount.stop() == 0
        with contextlib.closing(sqlite3.connect(mount.store / "ctxfs.db")) as database, database:
            assert database.execute(sql).rowcount > 0
        mount.start()
        found = faults(agent)
        assert any(fault["check"] == check and fault["path"].startswith(path) for fault in found), found


SEARCH_DRIFT = {
    "an entry is missing": "DELETE FROM entry WHERE n = 0",
    "an entry that is none": "INSERT INTO entry SELECT 99, id, 77, 5 FROM session",
    "words are missing": "INSERT INTO text (text) VALUES ('delete-all')",
    "another time": "UPDATE entry SET time = time - 1",
}


@pytest.mark.parametrize("sql", SEARCH_DRIFT.values(), ids=SEARCH_DRIFT)
def test_drift_of_the_search_index_is_found_and_mended_by_the_next_search(fuse_device: None, sql: str) -> None:
    with running_mount() as mount:
        agent = Agent(mount, "coder")
        agent.new("one")
        agent.say("one", "user", "hello there")
        agent.say("one", "user", "hello again")
        before = agent.run("search", "hello", "--json").out
        assert len(json.loads(before)["hits"]) == 2
        with contextlib.closing(sqlite3.connect(mount.store / "search/1.sqlite")) as index, index:
            index.execute(sql)
        [fault] = faults(agent, "coder")
        assert (fault["check"], fault["path"]) == ("search", "agent/coder/session/one")
        assert agent.run("search", "hello", "--json").out == before
        assert faults(agent, code=0) == []


def test_on_a_full_disk_it_says_what_it_can() -> None:
    """Its own search index has no room, and all that was read is still told."""
    need_loop_devices()
    with mount_on_disk(8 * MIB) as (mount, _):
        mount.allow("ENOSPC|full")
        agent = Agent(mount, "coder")
        filled(agent)
        (fault,) = faults(agent)
        assert (fault["check"], fault["path"]) == ("search", "agent/coder/session")
        assert "full" in fault["reason"]
        ran = agent.run("doctor")
        assert ran.out.splitlines()[-1] == "2 sessions, 5 entries: 1 fault"


def test_archived_sessions_are_read_too(fuse_device: None) -> None:
    with running_mount() as mount:
        agent = Agent(mount, "coder")
        filled(agent)
        home = agent.directory.parents[2]
        (home / "archived_sessions/coder").mkdir(parents=True)
        (agent.directory / "two").rename(home / "archived_sessions/coder/two")
        assert agent.run("doctor").out == "2 sessions, 5 entries: nothing is wrong\n"
        assert agent.run("doctor", "coder").out == "1 session, 4 entries: nothing is wrong\n"


def test_sessions_that_change_meanwhile_are_no_fault(agent: Agent) -> None:
    filled(agent)
    over = threading.Event()

    def change() -> None:
        number = 0
        while not over.is_set():
            number += 1
            agent.say("one", "assistant", f"more {number}")
            new = agent.directory / f"new{number % 100}"  # no more than can be looked through
            new.mkdir(exist_ok=True)
            (new / "cwd").write_text(f"/srv/{number % 3}\n")

    writer = threading.Thread(target=change)
    writer.start()
    try:
        for _ in range(3):
            assert faults(agent, agent.name, code=0) == []
    finally:
        over.set()
        writer.join()
