"""Times (spec 1.2): an mtime says when that file last changed, and moves with every change, also over restarts."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mount.scenery import SESSION_FILES, Home, append, event, put, said
from tests.mounting import RunningMount
from tests.people import ALICE, outcome


def mtimes(session: Path) -> dict[str, int]:
    """Of every file of a session and of the index above it."""
    index = session.parent / "index"
    paths = [*(session / name for name in SESSION_FILES), *(path for path in index.rglob("*") if path.is_file())]
    return {str(path.relative_to(session.parent)): path.stat().st_mtime_ns for path in paths if path.exists()}


def changed(before: dict[str, int], after: dict[str, int]) -> set[str]:
    """Files with another mtime; those must have grown."""
    assert all(after[name] >= then for name, then in before.items() if name in after)
    return {name.removeprefix("one/") for name in after if after[name] != before.get(name)}


def as_done(session: Path) -> None:
    append(session / "events.jsonl", event("state", **{"from": "idle", "state": "done"}))


WRITES: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "a user's message": (
        lambda session: append(session / "messages.jsonl", b'{"role":"user","content":"x"}\n'),
        {"messages.jsonl"},
    ),
    "an answer": (
        lambda session: append(session / "messages.jsonl", said("x")),
        {"messages.jsonl", "latest.md"},
    ),
    "an event": (
        lambda session: append(session / "events.jsonl", event("delta", run="r", text="x")),
        {"events.jsonl"},
    ),
    "a state": (lambda session: put(session / "state", "done"), {"events.jsonl", "state"}),
    "a state event": (as_done, {"events.jsonl", "state"}),
    "a cwd": (
        lambda session: put(session / "cwd", "/srv"),
        {"events.jsonl", "cwd", "index/by-cwd/cwd-9bef649c5c9d7b6b"},
    ),
    "meta": (
        lambda session: put(session / "meta.json", '{"client":"other","scope":"private"}'),
        {"events.jsonl", "meta.json"},
    ),
    "the state it has": (lambda session: put(session / "state", "idle"), set()),
    "a read": (lambda session: (session / "messages.jsonl").read_bytes(), set()),
    "a touch": (lambda session: os.utime(session / "messages.jsonl"), set()),
    "the current session it is": (lambda session: put(session.parent / "index/current", "one"), set()),
}


@pytest.mark.parametrize("what", WRITES)
def test_exactly_the_files_that_changed_get_a_new_mtime(home: Home, what: str) -> None:
    write, expected = WRITES[what]
    session = home.session("one")
    before = mtimes(session)
    write(session)
    now_and_then = {"updated_at"}  # a second may have begun, or not
    assert changed(before, mtimes(session)) - now_and_then == expected


def test_updated_at_and_list_change_when_another_session_is_updated(home: Home) -> None:
    one = home.session("one")
    home.session("two")
    before = mtimes(one)
    append(one / "messages.jsonl", said("x"))
    assert changed(before, mtimes(one)) - {"updated_at"} == {"messages.jsonl", "latest.md", "index/list"}


def test_every_append_moves_the_mtime_and_no_look_does(home: Home) -> None:
    log = home.session("one") / "messages.jsonl"
    last = log.stat().st_mtime_ns
    for _ in range(200):
        append(log, said("x"))
        now = log.stat().st_mtime_ns
        assert now > last
        assert log.stat().st_mtime_ns == now
        last = now


def test_no_time_is_zero_or_in_the_future(fresh_home: Home) -> None:
    session = fresh_home.session("one")
    fresh_home.session("two")
    append(session / "messages.jsonl", said("x"))
    (fresh_home.mount.path / "agent/coder.d").mkdir()
    (fresh_home.path / "model/m.d").mkdir()
    fresh_home.archived("two")
    end = time.time_ns() + 10**9
    started = end - 600 * 10**9
    for directory, names, files in os.walk(fresh_home.mount.path):
        for name in (*names, *files):
            status = os.lstat(os.path.join(directory, name))
            for stamp in (status.st_mtime_ns, status.st_ctime_ns, status.st_atime_ns):
                assert started < stamp < end, os.path.join(directory, name)


def test_a_session_directorys_mtime_is_its_updated_at(home: Home) -> None:
    session = home.session("one")
    append(session / "messages.jsonl", said("x"))
    assert int(session.stat().st_mtime) == int((session / "updated_at").read_text())
    assert int((session / "created_at").read_text()) <= int((session / "updated_at").read_text())


def test_mtimes_are_the_same_after_a_restart_and_go_on_from_there(mount: RunningMount) -> None:
    home = Home(mount, "coder")
    session = home.session("one")
    append(session / "messages.jsonl", said("x"))
    put(session / "cwd", "/srv")
    (home.index / "by-hash/h").write_text("one\n")
    (session / "AGENTS.md").write_text("x")
    before = mtimes(session) | {"AGENTS.md": (session / "AGENTS.md").stat().st_mtime_ns}
    mount.restart()
    after = mtimes(session) | {"AGENTS.md": (session / "AGENTS.md").stat().st_mtime_ns}
    assert after == before
    append(session / "messages.jsonl", said("y"))
    (session / "AGENTS.md").write_text("y")
    for name in ("one/messages.jsonl", "one/latest.md"):
        assert mtimes(session)[name] > before[name]
    assert (session / "AGENTS.md").stat().st_mtime_ns > before["AGENTS.md"]


def test_touch_is_accepted_for_now_only_and_changes_nothing(home: Home) -> None:
    log = home.session("one") / "messages.jsonl"
    before = log.stat()
    assert ALICE.outcome(os.utime, log) == "ok"
    assert ALICE.outcome(os.utime, log, (1, 1)) == "EPERM"
    assert log.stat().st_mtime_ns == before.st_mtime_ns
    assert outcome(os.utime, home.sessions / "one") == "ok"


def test_a_session_directorys_mtime_is_not_moved_by_snapshots(home: Home) -> None:
    session = home.session("one")
    before = session.stat().st_mtime_ns
    (session / "AGENTS.md").write_text("x")
    (session / "new").write_text("y")
    (session / "new").rename(session / "SKILLS.md")
    (session / "AGENTS.md").unlink()
    assert session.stat().st_mtime_ns == before


def test_by_cwds_mtime_moves_with_its_keys(home: Home) -> None:
    session, by_cwd = home.session("one"), home.index / "by-cwd"
    last = by_cwd.stat().st_mtime_ns
    for cwd in ("/srv", "/tmp", "/srv"):
        put(session / "cwd", cwd)
        assert by_cwd.stat().st_mtime_ns > last
        last = by_cwd.stat().st_mtime_ns
    put(session / "cwd", "/srv")
    assert by_cwd.stat().st_mtime_ns == last


def make_key(path: Path) -> None:
    path.write_text("one\n")


def save_key(path: Path) -> None:
    temporary = path.with_name(".new")
    temporary.write_text("one\n")
    temporary.rename(path)


# Directories in which names come and go, and how: (directory, name, made by, removed by).
NAMES: dict[str, tuple[Callable[[Home], Path], str, Callable[[Path], object], Callable[[Path], object]]] = {
    "agents": (lambda home: home.path / "agent", "new", Path.mkdir, Path.rmdir),
    "models": (lambda home: home.path / "model", "new.d", Path.mkdir, Path.rmdir),
    "archive": (lambda home: home.archive, "new", Path.mkdir, Path.rmdir),
    "nested archive": (lambda home: home.archive / "kept", "new", Path.mkdir, Path.rmdir),
    "shared": (lambda home: home.mount.path / "shared", "new", Path.mkdir, Path.rmdir),
    "definitions": (lambda home: home.mount.path / "agent", "new.d", Path.mkdir, Path.rmdir),
    "providers": (lambda home: home.mount.path / "model", "new", Path.mkdir, Path.rmdir),
    "ordinary directories": (lambda home: home.agent, "cache", Path.rmdir, Path.mkdir),
    "by-hash by a save": (lambda home: home.index / "by-hash", "new", save_key, Path.unlink),
    "by-hash": (lambda home: home.index / "by-hash", "new", make_key, Path.unlink),
    "sessions": (
        lambda home: home.sessions,
        "new",
        Path.mkdir,
        lambda path: os.setxattr(path, "user.ctx.delete", b"new"),
    ),
}


@pytest.mark.parametrize("what", NAMES)
def test_a_directorys_mtime_moves_when_a_name_in_it_comes_or_goes(home: Home, what: str) -> None:
    place, name, make, remove = NAMES[what]
    directory = place(home)
    home.session("one")
    ALICE.does((home.archive / "kept").mkdir, exist_ok=True)
    last = directory.stat().st_mtime_ns
    for change in (make, remove, make, remove):
        change(directory / name)
        now = directory.stat().st_mtime_ns
        assert now > last
        assert directory.stat().st_mtime_ns == now
        last = now
