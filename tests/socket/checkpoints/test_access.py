"""Whose workspace it is decides: a user who owns nothing gets nothing (spec 6.4)."""

import contextlib
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.checkpoints import wire
from backend.checkpoints.state import StateDirectory
from tests.checkpointing import CheckpointDaemon
from tests.mounting import wait_until
from tests.people import ALICE, BOB


@pytest.fixture
def workspace(copying: CheckpointDaemon) -> Path:
    """Alice's, with a snapshot ``one``."""
    path = copying.new_workspace(ALICE.uid)
    copying.expect(wire.CheckpointOk, wire.Checkpoint(str(path), "one", pin=True), ALICE)
    return path


def requests_for(workspace: Path) -> list[wire.Request]:
    name = str(workspace)
    return [
        wire.Checkpoint(name, "new"),
        wire.Rollback(name, "one"),
        wire.Delete(name, "one", True),
        wire.List(name),
        wire.Diff(name, "one", "one"),
        wire.Status(name),
        wire.Cleanup(name, 0),
        wire.Recover(name),
    ]


def test_everybody_may_connect(copying: CheckpointDaemon) -> None:
    assert stat.S_IMODE(copying.socket.stat().st_mode) == 0o666


def test_an_owner_may_do_everything_with_it(copying: CheckpointDaemon, workspace: Path) -> None:
    for request in requests_for(workspace):
        assert not isinstance(response := copying.ask(request, ALICE), wire.Error), response
        if isinstance(request, wire.Delete):
            copying.expect(wire.CheckpointOk, wire.Checkpoint(str(workspace), "one"), ALICE)


def test_another_user_learns_and_does_nothing(copying: CheckpointDaemon, workspace: Path) -> None:
    ws_id = copying.init(workspace)
    for name in (workspace, Path(ws_id)):
        for request in requests_for(name):
            copying.refuses("WorkspaceNotFound", f"workspace not found: {name}", request, BOB)
    copying.refuses("InvalidPath", "not a directory of yours", wire.Init(str(workspace)), BOB)
    copying.refuses("SnapshotNotFound", "snapshot not found: one", wire.Delete(None, "one", True), BOB)
    assert copying.ask(wire.List(), BOB) == wire.ListOk(())
    assert copying.expect(wire.StatusOk, wire.Status(), BOB).report.workspaces == ()
    assert copying.ids(workspace) == ["one"]


def test_what_exists_is_not_told(copying: CheckpointDaemon, workspace: Path) -> None:
    """A path of another's, of nobody's, of a file, and none at all are refused with the same words."""
    hidden = copying.base / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "there").mkdir()
    (hidden / "file").touch()
    paths = [workspace, hidden / "there", hidden / "file", hidden / "not there", Path("/"), Path("/etc")]
    for path in paths:
        answer = copying.ask(wire.Init(str(path)), BOB)
        assert answer == wire.Error(wire.ErrorCode.InvalidPath, f"not a directory of yours: {path}")
        answer = copying.ask(wire.Checkpoint(str(path), "one"), BOB)
        message = f"workspace not found: {path}, and no directory of yours"
        assert answer == wire.Error(wire.ErrorCode.WorkspaceNotFound, message)


def test_root_sees_all_and_a_user_their_own(copying: CheckpointDaemon, workspace: Path) -> None:
    of_bob = copying.new_workspace(BOB.uid)
    copying.expect(wire.CheckpointOk, wire.Checkpoint(str(of_bob), "one"), BOB)
    listed = {entry.workspace for entry in copying.expect(wire.ListOk, wire.List()).snapshots}
    assert {str(workspace), str(of_bob)} <= listed
    bobs = copying.expect(wire.ListOk, wire.List(), BOB).snapshots
    assert str(of_bob) in {entry.workspace for entry in bobs} and str(workspace) not in {e.workspace for e in bobs}
    assert copying.ask(wire.Delete(None, "one"), BOB) == wire.DeleteOk("one")


def test_a_new_owner_has_it_and_the_old_one_has_not(copying: CheckpointDaemon, workspace: Path) -> None:
    os.chown(workspace, BOB.uid, BOB.gid)
    copying.refuses("WorkspaceNotFound", "not found", wire.List(str(workspace)), ALICE)
    assert len(copying.expect(wire.ListOk, wire.List(str(workspace)), BOB).snapshots) == 1


def test_who_puts_a_directory_in_its_place_gets_nothing(copying: CheckpointDaemon) -> None:
    """The directory above is Bob's, so he can move Alice's away; her snapshots do not become his."""
    above = copying.new_workspace(BOB.uid)
    path = above / "of alice"
    path.mkdir()
    (path / "secret").write_text("hers")
    os.chown(path, ALICE.uid, ALICE.gid)
    copying.expect(wire.CheckpointOk, wire.Checkpoint(str(path), "one"), ALICE)

    def replace() -> None:
        path.rename(above / "away")
        path.mkdir()

    BOB.does(replace)
    for request in requests_for(path):
        copying.refuses("WorkspaceNotFound", "not found", request, BOB)
    copying.refuses("InvalidPath", "not a directory of yours", wire.Init(str(path)), BOB)
    copying.refuses("InvalidPath", "was replaced", wire.Rollback(str(path), "one"), ALICE)


def test_a_symlink_to_anothers_directory_is_anothers(copying: CheckpointDaemon, workspace: Path) -> None:
    above = copying.new_workspace(BOB.uid)
    BOB.does(os.symlink, workspace, above / "link")
    copying.refuses("InvalidPath", "not a directory of yours", wire.Init(str(above / "link")), BOB)
    copying.refuses("WorkspaceNotFound", "not found", wire.List(str(above / "link")), BOB)


def test_only_root_reloads_and_everybody_may_read_the_configuration(copying: CheckpointDaemon) -> None:
    copying.refuses("InternalError", "permission denied", wire.ReloadConfig(), ALICE)
    copying.expect(wire.ConfigOk, wire.Config(), ALICE)
    copying.expect(wire.HealthAdvisoryOk, wire.HealthAdvisory(), ALICE)
    copying.expect(wire.ReloadConfigOk, wire.ReloadConfig())


def test_snapshots_are_out_of_reach(copying: CheckpointDaemon, workspace: Path) -> None:
    mount_path = copying.expect(wire.ConfigOk, wire.Config()).config.mount_path
    assert ALICE.outcome(os.listdir, mount_path) == "EACCES"
    kept = [file for file in copying.state.rglob("*") if (copying.state / "snapshots") not in file.parents]
    assert {"index.json", "stamps", "state.json", "reserve"} <= {file.name for file in kept}
    for file in kept:
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file


def test_what_another_daemon_left_for_all_to_read_is_private(tmp_path: Path) -> None:
    """As a systemd unit's ``StateDirectory`` is, and what upstream's daemon makes in it."""
    directory = StateDirectory(tmp_path / "state")
    for path in (directory.root, directory.indexes, directory.snapshots):
        path.mkdir(mode=0o755)
    directory.prepare()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (directory.indexes, directory.snapshots)} == {0o700}


def swap_until(stop: Path, directory: Path, link: Path) -> None:
    """Makes a name a directory and a symlink in turn, as fast as it goes."""
    aside = directory.with_name("aside")
    while not stop.exists():
        directory.rename(aside)
        link.rename(directory)
        directory.rename(link)
        aside.rename(directory)


@contextlib.contextmanager
def swapped_meanwhile(workspace: Path) -> Iterator[None]:
    """Alice swaps ``directory`` and ``link`` all the time."""
    stop = workspace.with_name(f"{workspace.name} stop")
    swapper = threading.Thread(target=ALICE.does, args=(swap_until, stop, workspace / "directory", workspace / "link"))
    swapper.start()
    try:
        wait_until((workspace / "directory").is_symlink, "the first swap")
        yield
    finally:
        stop.touch()
        swapper.join()


def test_a_symlink_that_takes_a_directorys_place_meanwhile_leads_nowhere(copying: CheckpointDaemon) -> None:
    hidden = copying.new_workspace()
    hidden.chmod(0o700)
    (hidden / "secret").write_text("root's")
    workspace = copying.new_workspace(ALICE.uid)
    ALICE.does((workspace / "directory").mkdir)
    ALICE.does((workspace / "directory/secret").write_text, "hers")
    ALICE.does((workspace / "link").symlink_to, hidden)
    with swapped_meanwhile(workspace):
        answers = [copying.ask(wire.Checkpoint(str(workspace), f"s{number}"), ALICE) for number in range(5)]
    assert {type(answer) for answer in answers} <= {wire.CheckpointOk, wire.Error}
    copying.checkpoint(workspace, "last")
    kept = [path.read_text() for path in (copying.state / "snapshots").rglob("secret") if path.is_file()]
    assert set(kept) == {"hers"}
