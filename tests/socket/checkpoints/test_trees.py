"""A workspace comes back exactly as it was, on every back end (spec 6.5)."""

import os
import shutil
from pathlib import Path

from backend.checkpoints import wire
from tests.checkpointing import CheckpointDaemon
from tests.trees import describe, plant


def planted(daemon: CheckpointDaemon) -> Path:
    workspace = daemon.new_workspace()
    plant(workspace)
    workspace.chmod(0o2751)
    os.setxattr(workspace, "user.root", b"of the workspace itself")
    os.utime(workspace, ns=(0, 1_000_000_000_000_000_001))
    return workspace


def spoil(workspace: Path) -> None:
    """Changes a bit of everything."""
    for name in ("plain.txt", "of alice", "link out", "fifo", "null"):
        (workspace / name).unlink()
    shutil.rmtree(workspace / "a")
    (workspace / "a").write_text("a file now")
    (workspace / "sparse").write_text("dense")
    (workspace / "with space").chmod(0o644)
    os.chown(workspace / "of bob", 0, 0)
    (workspace / "new").mkdir()
    (workspace / "new/file").write_text("new")
    workspace.chmod(0o700)
    os.removexattr(workspace, "user.root")


def test_rollback_brings_everything_back(daemon: CheckpointDaemon) -> None:
    workspace = planted(daemon)
    before = describe(workspace)
    daemon.checkpoint(workspace, "one")
    assert describe(workspace) == before
    spoil(workspace)
    daemon.rollback(workspace, "one")
    assert describe(workspace) == before
    assert [path for path in os.listdir(daemon.area) if path.startswith(".")] == []


def test_rollback_goes_forward_again(daemon: CheckpointDaemon) -> None:
    workspace = planted(daemon)
    daemon.checkpoint(workspace, "one")
    spoil(workspace)
    spoilt = describe(workspace)
    daemon.checkpoint(workspace, "two")
    daemon.rollback(workspace, "one")
    daemon.rollback(workspace, "two")
    assert describe(workspace) == spoilt


def test_what_changes_after_a_rollback_changes_no_snapshot(daemon: CheckpointDaemon) -> None:
    workspace = planted(daemon)
    before = describe(workspace)
    daemon.checkpoint(workspace, "one")
    daemon.checkpoint(workspace, "two")
    for snapshot in ("one", "two"):
        daemon.rollback(workspace, snapshot)
        with (workspace / "plain.txt").open("a") as file:
            file.write("more")
        with (workspace / "hard link").open("r+b") as binary:
            binary.write(b"overwritten")
        (workspace / "of alice").chmod(0o600)
        os.setxattr(workspace / "plain.txt", "user.note", b"other")
    for snapshot in ("one", "two"):
        daemon.rollback(workspace, snapshot)
        assert describe(workspace) == before


def test_recover_leaves_the_tree_as_it_is(daemon: CheckpointDaemon) -> None:
    workspace = planted(daemon)
    before = describe(workspace)
    daemon.checkpoint(workspace, "one")
    assert daemon.expect(wire.RecoverOk, wire.Recover(str(workspace))).workspace == str(workspace)
    assert describe(workspace) == before
    assert workspace.is_dir() and not workspace.is_symlink()


def test_a_file_that_is_rewritten_in_place_with_its_old_times_is_new(daemon: CheckpointDaemon) -> None:
    workspace = daemon.new_workspace()
    file = workspace / "file"
    os.utime(file, ns=(0, 1_000_000_000))
    daemon.checkpoint(workspace, "one")
    for id, text in (("two", "other\n"), ("three", "third\n")):
        file.write_text(text)
        os.utime(file, ns=(0, 1_000_000_000))
        daemon.checkpoint(workspace, id)
    for id, text in (("one", "first\n"), ("two", "other\n"), ("three", "third\n")):
        daemon.rollback(workspace, id)
        assert file.read_text() == text


def test_a_tree_deeper_than_a_path_may_be_long(daemon: CheckpointDaemon) -> None:
    workspace = daemon.new_workspace()
    directory = os.open(workspace, os.O_RDONLY)
    for _ in range(40):
        name = "d" * 200
        os.mkdir(name, dir_fd=directory)
        below = os.open(name, os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=directory))
    os.close(directory)
    daemon.checkpoint(workspace, "one")
    shutil.rmtree(workspace / ("d" * 200))
    daemon.checkpoint(workspace, "two")
    daemon.rollback(workspace, "one")
    changes = daemon.expect(wire.DiffOk, wire.Diff(str(workspace), "two", "one")).changes
    assert len(changes) == 41 and max(len(change.path) for change in changes) == 40 * 201 + len("bottom")
