"""Ordinary directories of a whole mount: beside sessions, and as many open files as the system allows."""

import errno
import os
import resource
from pathlib import Path

import pytest

from tests.mounting import RunningMount
from tests.people import Person
from tests.posix.conftest import AS_ROOT

pytestmark = AS_ROOT
PERSON = Person(1001, 1001)
USUAL_LIMIT = 1024


@pytest.fixture
def agent(mount: RunningMount) -> Path:
    found = mount.path / "home" / "1001" / "agent" / "coder"
    PERSON.does(os.mkdir, found)
    return found


def test_a_mount_can_have_more_files_open_than_a_process_usually_may(agent: Path) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most <= 2 * USUAL_LIMIT:
        pytest.skip("the system allows no more")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        files = [os.open(agent / "data" / str(number), os.O_CREAT | os.O_RDWR) for number in range(USUAL_LIMIT + 100)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert os.pread(files[-1], 1, 0) == b""
    for fd in files:
        os.close(fd)


@pytest.mark.parametrize("call", [os.rename, os.link])
def test_files_do_not_go_between_disk_and_sessions(agent: Path, call: object) -> None:
    os.mkdir(agent / "session" / "one")
    (agent / "data" / "file").write_bytes(b"content")
    crossings = [
        (agent / "data" / "file", agent / "session" / "one" / "new"),
        (agent / "session" / "one" / "state", agent / "data" / "state"),
    ]
    for crossing in crossings:
        with pytest.raises(OSError) as caught:
            call(*crossing)  # type: ignore[operator]
        assert caught.value.errno == errno.EXDEV


def test_files_go_between_ordinary_directories(agent: Path) -> None:
    (agent / "data" / "file").write_bytes(b"content")
    os.link(agent / "data" / "file", agent / "cache" / "linked")
    os.rename(agent / "data" / "file", agent / "log" / "renamed")
    assert (agent / "cache" / "linked").stat().st_ino == (agent / "log" / "renamed").stat().st_ino


def test_emptying_and_removing_root_leaves_sessions_as_they_are(agent: Path) -> None:
    os.mkdir(agent / "session" / "one")
    (agent / "session" / "one" / "events.jsonl").read_bytes()
    (agent / "root" / "etc").mkdir()
    os.rmdir(agent / "root" / "etc")
    os.rmdir(agent / "root")
    assert sorted(os.listdir(agent)) == ["cache", "data", "log", "session"]
    os.mkdir(agent / "root")
    assert os.listdir(agent / "root") == []
    assert os.listdir(agent / "session" / "one") != []


def test_who_is_in_a_removed_root_is_not_in_the_new_one(agent: Path) -> None:
    inside = os.open(agent / "root", os.O_RDONLY)
    os.rmdir(agent / "root")
    os.mkdir(agent / "root")
    (agent / "root" / "new").touch()
    with pytest.raises(FileNotFoundError):
        os.stat("new", dir_fd=inside)
    assert os.fstat(inside).st_nlink == 0
    os.close(inside)
