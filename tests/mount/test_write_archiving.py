"""Spec 1.4, Directories: a session is archived by a rename, and no other rename of a session is possible."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from tests.mount.acting import NOREPLACE, agent_directory, message, new_session, opened, refused, renameat2, write_once
from tests.people import ALICE, ROOT


def archive_of(session: Path) -> Path:
    """Where a session is archived: ``archived_sessions/<agent>``, made if it is not there."""
    directory = session.parents[3] / "archived_sessions" / session.parents[1].name
    directory.mkdir(exist_ok=True)
    return directory


@pytest.fixture
def idle(ctx: Path) -> Path:
    """A session with a message that is not its agent's current one."""
    new_session(ctx)
    session = new_session(ctx)
    write_once(session / "messages.jsonl", message())
    return session


@pytest.mark.parametrize("flags", [0, NOREPLACE])
def test_a_session_is_archived_with_and_without_noreplace(idle: Path, flags: int) -> None:
    target = archive_of(idle) / idle.name
    renameat2(idle, target, flags)
    assert not idle.exists()
    assert idle.name not in os.listdir(idle.parent)
    assert (target / "messages.jsonl").read_bytes() == message()
    assert idle.name not in (idle.parent / "index/list").read_text().split()


def test_mv_archives(idle: Path) -> None:
    subprocess.run(["mv", "--no-clobber", idle, archive_of(idle)], check=True)
    assert (archive_of(idle) / idle.name / "messages.jsonl").read_bytes() == message()


def test_directories_may_stand_above_it(idle: Path) -> None:
    target = idle.parents[3] / "archived_sessions/2026/july" / idle.parents[1].name
    target.mkdir(parents=True, exist_ok=True)
    idle.rename(target / idle.name)
    assert (target / idle.name / "messages.jsonl").read_bytes() == message()


@pytest.mark.parametrize("flags", [0, NOREPLACE])
def test_an_archived_name_is_never_replaced(idle: Path, flags: int) -> None:
    target = archive_of(idle) / idle.name
    idle.rename(target)
    idle.mkdir()
    with refused(errno.EEXIST):
        renameat2(idle, target, flags)
    assert (target / "messages.jsonl").read_bytes() == message()
    assert idle.exists()


def test_active_default_and_current_sessions_are_busy(ctx: Path) -> None:
    sessions = agent_directory(ctx, agent="busy") / "session"
    current, default, active = sessions / "first", sessions / "default", sessions / "active"
    for session in (current, default, active):
        session.mkdir()
    (active / "state").write_text("active\n")
    for session in (current, default, active):
        with refused(errno.EBUSY):
            session.rename(archive_of(session) / session.name)
        assert session.exists()
    (active / "state").write_text("idle\n")
    active.rename(archive_of(active) / active.name)


def test_a_session_goes_nowhere_else(ctx: Path, idle: Path) -> None:
    other_agent = agent_directory(ctx, agent="other")
    archived = idle.parents[3] / "archived_sessions"
    for directory in (archived / "other", archived / "coder"):
        directory.mkdir(exist_ok=True)
    targets = [
        idle.parent / "renamed",
        other_agent / "session" / idle.name,
        archived / idle.name,
        archived / "other" / idle.name,
        archived / "coder/renamed",
        idle.parents[1] / "data" / idle.name,
        idle.parents[1] / "root" / idle.name,
    ]
    for target in targets:
        for flags in (0, NOREPLACE):
            with refused(errno.EPERM):
                renameat2(idle, target, flags)
        assert not target.exists()
    assert (idle / "messages.jsonl").read_bytes() == message()


def test_mv_to_an_ordinary_directory_copies_nothing(idle: Path) -> None:
    data = idle.parents[1] / "data"
    result = subprocess.run(["mv", idle, data], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "Operation not permitted" in result.stderr
    assert idle.name not in os.listdir(data)
    assert (idle / "messages.jsonl").read_bytes() == message()


def test_a_session_never_leaves_its_space(ctx: Path) -> None:
    new_session(ctx, ALICE)
    session = new_session(ctx, ALICE)
    for target in (agent_directory(ctx) / "session" / session.name, agent_directory(ctx) / "data" / session.name):
        assert ROOT.outcome(session.rename, target) == "EPERM"
        assert ALICE.outcome(session.rename, target) == "EACCES"
    archive = ctx / "home/0/archived_sessions/coder"
    archive.mkdir(exist_ok=True)
    assert ROOT.outcome(session.rename, archive / session.name) == "EPERM"


def test_nothing_is_renamed_in_or_out_of_the_archive(idle: Path) -> None:
    where = archive_of(idle) / idle.name
    idle.rename(where)
    (idle.parents[1] / "data/ordinary").mkdir(exist_ok=True)
    for old, new, number in (
        (where, idle, errno.EROFS),
        (where, where.parent / "renamed", errno.EROFS),
        (where / "state", where / "state2", errno.EROFS),
        (idle.parents[1] / "data/ordinary", where.parent / "ordinary", errno.EXDEV),
    ):
        with pytest.raises(OSError) as caught:
            old.rename(new)
        assert caught.value.errno in (number, errno.EPERM)
    assert (where / "messages.jsonl").read_bytes() == message()


def test_readers_go_on_reading_what_was_archived(idle: Path) -> None:
    with opened(idle / "messages.jsonl", os.O_RDONLY) as descriptor:
        idle.rename(archive_of(idle) / idle.name)
        assert os.read(descriptor, 100) == message()
