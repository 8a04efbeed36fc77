"""Renames of temporaries, one after another and at the same time (spec 1.4)."""

import errno
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mount.acting import (
    EXCHANGE,
    NOREPLACE,
    WHITEOUT,
    message,
    new_session,
    opened,
    refused,
    renameat2,
    save,
    write_once,
)
from tests.people import ALICE, ROOT, Person, outcome

A, B, C = message("a"), message("b"), message("c")


def test_a_temporary_may_be_renamed_to_another_one(session: Path) -> None:
    (session / "one").write_bytes(b"1")
    (session / "two").write_bytes(b"2")
    (session / "one").rename(session / "two")
    assert (session / "two").read_bytes() == b"1"
    assert not (session / "one").exists()
    with refused(errno.EACCES):
        (session / "two").rename(session / "4913")


@pytest.mark.parametrize("target", ["state", "messages.jsonl", "AGENTS.md", "tmp2"])
def test_noreplace_onto_what_is_there_is_eexist(session: Path, target: str) -> None:
    (session / "AGENTS.md").write_text("x")
    (session / "tmp2").write_text("x")
    (session / "tmp").write_text("active\n")
    with refused(errno.EEXIST):
        renameat2(session / "tmp", session / target, NOREPLACE)
    assert (session / "state").read_text() == "idle\n"


def test_noreplace_onto_what_is_not_there_works(session: Path) -> None:
    for target in ("AGENTS.md", "free"):
        (session / "tmp").write_text("new\n")
        renameat2(session / "tmp", session / target, NOREPLACE)
        assert (session / target).read_text() == "new\n"


@pytest.mark.parametrize("flags", [EXCHANGE, WHITEOUT])
@pytest.mark.parametrize("target", ["state", "messages.jsonl", "tmp2"])
def test_exchange_and_whiteout_are_einval_and_change_nothing(session: Path, target: str, flags: int) -> None:
    (session / "tmp2").write_text("x")
    (session / "tmp").write_text("active\n")
    before = (session / target).read_bytes()
    with refused(errno.EINVAL):
        renameat2(session / "tmp", session / target, flags)
    assert (session / target).read_bytes() == before
    assert (session / "tmp").read_text() == "active\n"


def test_between_ordinary_directories_and_session_files_is_exdev(session: Path) -> None:
    ordinary = session.parent.parent / "data"
    (session / "tmp").write_bytes(b"x")
    with refused(errno.EXDEV):
        (session / "tmp").rename(ordinary / "tmp")
    (ordinary / "file").write_text("active\n")
    with refused(errno.EXDEV):
        (ordinary / "file").rename(session / "state")
    with refused(errno.EXDEV):
        (session / "state").rename(ordinary / "state")
    with refused(errno.EXDEV):
        os.link(ordinary / "file", session / "linked")
    moved = subprocess.run(["mv", ordinary / "file", session / "state"], capture_output=True, check=False)
    assert moved.returncode != 0  # it removes the target before it copies
    assert ((ordinary / "file").read_text(), (session / "state").read_text()) == ("active\n", "idle\n")
    subprocess.run(["cp", ordinary / "file", session / "state"], check=True)
    assert (session / "state").read_text() == "active\n"


def test_between_two_session_directories_is_refused(ctx: Path) -> None:
    one, two = new_session(ctx), new_session(ctx)
    (one / "tmp").write_text("active\n")
    with refused(errno.EXDEV):
        (one / "tmp").rename(two / "state")
    with refused(errno.EPERM):
        (one / "state").rename(two / "state")
    assert (two / "state").read_text() == "idle\n"


@pytest.fixture
def threads() -> Iterator[Callable[[list[Callable[[], object]]], list[BaseException]]]:
    """Runs actions at the same time; what they raised."""

    def run(actions: list[Callable[[], object]]) -> list[BaseException]:
        raised: list[BaseException] = []
        together = threading.Barrier(len(actions))

        def act(action: Callable[[], object]) -> None:
            together.wait()
            try:
                action()
            except BaseException as error:
                raised.append(error)

        running = [threading.Thread(target=act, args=(action,)) for action in actions]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return raised

    yield run


def test_parallel_atomic_replaces_never_share_a_temporary(
    session: Path, threads: Callable[[list[Callable[[], object]]], list[BaseException]]
) -> None:
    """All use the same name, O_EXCL: each waits its turn, and what is stored is always one writer's whole content."""
    path = session / "AGENTS.md"
    contents = [(str(number) * 5000).encode() for number in range(4)]

    def replace(content: bytes) -> None:
        for _ in range(20):
            while outcome(save, path, content) == "EEXIST":
                pass
            assert path.read_bytes() in contents

    assert threads([lambda content=content: replace(content) for content in contents]) == []  # type: ignore[misc]
    assert path.read_bytes() in contents


def test_people_replace_the_same_file_at_the_same_time(ctx: Path) -> None:
    """Two uids, one name: neither sees the other's temporary."""
    session = new_session(ctx, ALICE)
    path = session / "AGENTS.md"

    def half(person: Person, content: bytes) -> int:
        with opened(session / "tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
            return os.write(descriptor, content)

    assert ALICE.does(half, ALICE, b"alice\n") == ROOT.does(half, ROOT, b"root\n") + 1
    ALICE.does(os.rename, session / "tmp", path)
    assert ALICE.does(path.read_bytes) == b"alice\n"
    ROOT.does(os.rename, session / "tmp", path)
    assert ALICE.does(path.read_bytes) == b"root\n"


# Replacing a log while others append.


def test_a_save_of_what_is_older_than_the_file_is_refused(started: Path) -> None:
    log = started / "messages.jsonl"
    old = log.read_bytes()
    write_once(log, B)
    with refused(errno.EPERM):
        save(log, old + C)
    assert log.read_bytes() == A + B


def test_saves_that_race_with_an_appender_lose_nothing(session: Path) -> None:
    log = session / "messages.jsonl"
    appended = [message(f"appended {number}") for number in range(200)]

    def append() -> None:
        for line in appended:
            write_once(log, line)

    appender = threading.Thread(target=append)
    appender.start()
    saved: list[bytes] = []
    number = 0
    while appender.is_alive() or not saved:
        line = message(f"saved {number}")
        number += 1
        try:
            save(log, log.read_bytes() + line, f"tmp{number}")
        except OSError as error:
            assert error.errno == errno.EPERM
        else:
            saved.append(line)
    appender.join()
    lines = log.read_bytes().splitlines(keepends=True)
    assert sorted(lines) == sorted(appended + saved)
    assert [line for line in lines if line in appended] == appended
