"""A tree that CortexFS left is mounted as it is, its ordinary directories too (spec 1.2, 2.9)."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxfs import stores
from tests.mount.scenery import append, said
from tests.mounting import RunningMount, running_mount
from tests.people import outcome
from tests.unit.jsonl_tree import HOME, MESSAGES, write_cortexfs, write_tree

AGENT = f"{HOME}/agent/coder"
ORDINARY = (*(f"{AGENT}/{name}" for name in ("root", "data", "cache", "log")), "shared/team/data")


@pytest.fixture
def tree(fuse_device: None) -> Iterator[RunningMount]:
    """A mount of a jsonl store that was made from such a tree."""
    with running_mount("jsonl") as mount:
        assert mount.stop() == 0
        shutil.rmtree(mount.store)
        mount.store.mkdir(0o755)
        write_cortexfs(mount.store)
        write_tree(mount.store, {f"{place}/deep/file": place.encode() for place in ORDINARY})
        (mount.store / AGENT / "data/link").symlink_to("deep/file")
        mount.start()
        yield mount


@pytest.mark.parametrize("place", ORDINARY)
def test_its_ordinary_directories_are_shown_and_written_where_they_are(tree: RunningMount, place: str) -> None:
    assert (tree.path / place / "deep/file").read_text() == place
    (tree.path / place / "new").write_text("new")
    (tree.path / place / "deep/file").unlink()
    assert (tree.store / place / "new").read_text() == "new"
    assert os.listdir(tree.store / place / "deep") == []
    tree.restart()
    assert (tree.path / place / "new").read_text() == "new"


def test_its_sessions_are_the_store_s_and_no_other_name_of_the_disk_is_shown(tree: RunningMount) -> None:
    assert sorted(os.listdir(tree.path / AGENT)) == ["cache", "data", "log", "root", "session"]
    assert sorted(os.listdir(tree.path)) == ["agent", "home", "model", "shared", "status"]
    session = tree.path / AGENT / "session/default"
    assert (session / "messages.jsonl").read_bytes() == MESSAGES
    assert (outcome(os.stat, session / ".store"), outcome(os.stat, tree.path / ".ctxfs")) == ("ENOENT", "ENOENT")
    append(session / "messages.jsonl", said("more"))
    assert (tree.store / AGENT / "session/default/messages.jsonl").read_bytes() == MESSAGES + said("more")
    assert os.readlink(tree.path / AGENT / "data/link") == "deep/file"
    assert not (tree.store / "disk").exists()


@pytest.mark.parametrize("kind", ["missing", "file", "link"])
def test_what_is_no_directory_there_is_not_shown_and_hides_nothing(tree: RunningMount, kind: str) -> None:
    assert tree.stop() == 0
    place = tree.store / AGENT / "data"
    shutil.rmtree(place)
    if kind == "file":
        place.touch()
    elif kind == "link":
        place.symlink_to("/etc")
    tree.start()
    assert sorted(os.listdir(tree.path / AGENT)) == ["cache", "log", "root", "session"]
    assert outcome(os.stat, tree.path / AGENT / "data") in ("ENOENT", "ENOTDIR")


def test_an_agent_that_comes_and_goes_leaves_the_home_and_can_come_again(tree: RunningMount) -> None:
    for _ in range(2):
        agent = tree.path / HOME / "agent/second"
        agent.mkdir()
        (agent / "data/file").touch()
        assert (tree.store / HOME / "agent/second/data/file").exists()
        assert outcome(agent.rmdir) == "ENOTEMPTY"
        (agent / "data/file").unlink()
        agent.rmdir()
        assert not (tree.store / HOME / "agent/second").exists()
        tree.restart()
    empty = tree.path / "home/4711/agent/only"
    empty.mkdir()
    empty.rmdir()
    assert (tree.store / "home/4711").is_dir()
    empty.mkdir()
    (empty / "session/s").mkdir()
    tree.restart()
    assert os.listdir(empty / "session") != []


@pytest.mark.parametrize(
    ("files", "form"),
    [
        ((), None),
        ((".ctxfs/format",), "jsonl"),
        ((".ctxfs/format", "agent/x.d/owner"), "jsonl"),
        (("home/1000/agent/a/data/x",), "jsonl"),
        (("shared/team/data/x",), "jsonl"),
        (("ctxfs.db",), "sqlite"),
        (("ctxfs.db", "disk/home/1000/agent/a/data/x"), "sqlite"),
    ],
)
def test_a_store_is_known_by_its_files(tmp_path: Path, files: tuple[str, ...], form: str | None) -> None:
    write_tree(tmp_path, dict.fromkeys(files, b""))
    assert stores.detect(tmp_path) == form
