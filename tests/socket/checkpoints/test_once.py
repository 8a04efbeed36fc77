"""What needs to be shown with one back end only (spec 6.3, 6.5)."""

import itertools
import os
import stat
import threading
import time

import pytest

from backend.checkpoints import wire
from tests.checkpointing import CheckpointDaemon, Writer, checkpoint_daemon, disk, scratch
from tests.mounting import wait_until
from tests.people import ALICE, BOB


def test_cleanup_keeps_twenty_unless_told(copying: CheckpointDaemon) -> None:
    workspace = copying.new_workspace()
    for number in range(22):
        copying.checkpoint(workspace, f"s{number:02}")
    assert copying.ask(wire.Cleanup(str(workspace))) == wire.CleanupOk(("s00", "s01"))


def test_a_workspace_of_another_file_system_than_the_snapshots(copying: CheckpointDaemon) -> None:
    with scratch() as base, disk("reflink", base) as mounted:
        workspace = mounted / "workspace"
        workspace.mkdir()
        (workspace / "file").write_text("first\n")
        copying.checkpoint(workspace, "one")
        (workspace / "file").unlink()
        copying.rollback(workspace, "one")
        assert (workspace / "file").read_text() == "first\n"
        copying.expect(wire.RecoverOk, wire.Recover(str(workspace)))


def test_who_could_not_reach_a_workspace_cannot_reach_it_on_btrfs_either() -> None:
    """It moves out of its private parent directory; nobody gets in by that, and its owner is not shut out."""
    with checkpoint_daemon("btrfs") as daemon:
        private = daemon.new_workspace(ALICE.uid)
        private.chmod(0o700)
        workspace = private / "workspace"
        ALICE.does(workspace.mkdir)
        ALICE.does((workspace / "file").write_text, "hers")
        daemon.expect(wire.CheckpointOk, wire.Checkpoint(str(workspace), "one"), ALICE)
        live = workspace.resolve()
        assert stat.S_IMODE(live.stat().st_mode) & 0o005
        assert ALICE.does((workspace / "file").read_text) == "hers"
        assert BOB.outcome(os.listdir, live) == "EACCES"
        assert ALICE.outcome((live.parent / "new").mkdir) == "EACCES"
        daemon.expect(wire.RollbackOk, wire.Rollback(str(workspace), "one"), ALICE)
        daemon.restart()
        daemon.expect(wire.RecoverOk, wire.Recover(str(workspace)), ALICE)
        assert ALICE.does((workspace / "file").read_text) == "hers"


ON_BTRFS = pytest.mark.parametrize("shared", ["btrfs"], indirect=True, scope="package")


@ON_BTRFS
@pytest.mark.parametrize("other", [None, "/etc", "dangling"])
def test_a_link_that_is_gone_or_wrong_is_made_again_by_a_start(daemon: CheckpointDaemon, other: str | None) -> None:
    workspace = daemon.new_workspace()
    daemon.checkpoint(workspace, "one")
    live = workspace.resolve()
    workspace.unlink()
    if other is not None:
        workspace.symlink_to(other)
    daemon.restart()
    assert workspace.resolve() == live
    daemon.checkpoint(workspace, "two")


@ON_BTRFS
def test_a_diff_of_btrfs_knows_renames_and_links(daemon: CheckpointDaemon) -> None:
    workspace = daemon.new_workspace()
    for name in ("renamed", "linked", "moved by link", "truncated", "both"):
        (workspace / name).write_text(name)
    (workspace / "directory").mkdir()
    daemon.checkpoint(workspace, "one")
    (workspace / "renamed").rename(workspace / "new name")
    (workspace / "directory").rename(workspace / "工作 区")
    os.link(workspace / "linked", workspace / "second link")
    os.link(workspace / "moved by link", workspace / "moved")
    (workspace / "moved by link").unlink()
    os.truncate(workspace / "truncated", 3)
    (workspace / "both").rename(workspace / "both ways")
    (workspace / "both ways").write_text("and changed")
    daemon.checkpoint(workspace, "two")
    changes = daemon.expect(wire.DiffOk, wire.Diff(str(workspace), "one", "two")).changes
    renamed, added, modified = wire.ChangeType.Renamed, wire.ChangeType.Added, wire.ChangeType.Modified
    assert sorted(changes, key=lambda change: change.path) == [
        wire.DiffEntry("both ways", renamed, "both → both ways"),
        wire.DiffEntry("moved", renamed, "moved by link → moved"),
        wire.DiffEntry("new name", renamed, "renamed → new name"),
        wire.DiffEntry("second link", added, "hardlink"),
        wire.DiffEntry("truncated", modified),
        wire.DiffEntry("工作 区", renamed, "directory → 工作 区"),
    ]


def test_a_workspace_that_is_being_changed_is_shown_as_locked(copying: CheckpointDaemon) -> None:
    """A checkpoint waits a moment to see whether somebody writes; they are asked for until that moment is seen."""
    workspace = copying.new_workspace()
    ws_id, seen = copying.init(workspace), threading.Event()

    def ask() -> None:
        for number in itertools.count():
            copying.ask(wire.Checkpoint(ws_id, f"s{number}"))
            if seen.is_set():
                return

    def shown(path: str) -> list[wire.WorkspaceInfo]:
        found = copying.expect(wire.StatusOk, wire.Status()).report.workspaces
        return [info for info in found if (info.ws_id, info.path) == (ws_id, path)]

    with Writer(workspace / "file"):
        asking = threading.Thread(target=ask)
        asking.start()
        try:
            wait_until(lambda: shown("<locked>"), "the lock")
        finally:
            seen.set()
            asking.join()
    copying.checkpoint(workspace, "last")
    assert shown(str(workspace)) == [wire.WorkspaceInfo(ws_id, str(workspace), len(copying.ids(workspace)))]


def test_what_did_not_change_is_stored_once(copying: CheckpointDaemon) -> None:
    """Also over a rollback, which makes every file anew."""
    workspace = copying.new_workspace()
    (workspace / "same").write_text("same")
    time.sleep(0.05)  # a change that is younger than the kernel's clock is fine could hide another
    bucket = copying.state / "snapshots" / copying.init(workspace)
    copying.checkpoint(workspace, "one")
    (workspace / "file").write_text("second")
    copying.checkpoint(workspace, "two")
    copying.rollback(workspace, "one")
    copying.checkpoint(workspace, "three")
    (workspace / "file").write_text("fourth")
    copying.checkpoint(workspace, "four")

    def inode(snapshot: str, name: str) -> int:
        return (bucket / snapshot / name).stat().st_ino

    assert len({inode(id, "same") for id in ("one", "two", "three", "four")}) == 1
    assert inode("three", "file") == inode("one", "file")
    assert len({inode(id, "file") for id in ("one", "two", "four")}) == 3
    assert (workspace / "same").stat().st_nlink == 1
