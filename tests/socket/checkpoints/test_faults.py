"""What other daemons of this protocol do wrong, and ours must not (spec 6.3; notes 4.1, 4.2), on every back end."""

import contextlib
import mmap
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from backend.checkpoints import wire
from tests.checkpointing import Asker, CheckpointDaemon, Writer
from tests.mounting import wait_until
from tests.people import ALICE, ROOT, Person
from tests.socket.checkpoints.conftest import EACH_WAY

REPLACED = "workspace was replaced; init adopts it"

pytestmark = EACH_WAY


@pytest.fixture
def workspace(daemon: CheckpointDaemon) -> Path:
    """With a snapshot ``one`` of ``file``."""
    path = daemon.new_workspace()
    daemon.checkpoint(path, "one")
    return path


def replace(workspace: Path) -> None:
    """Another directory stands at the path; what was there is beside it."""
    workspace.rename(workspace.with_name(workspace.name + " away"))
    workspace.mkdir()
    (workspace / "other").write_text("other\n")


def test_a_replaced_workspace_is_refused_and_its_files_stay(daemon: CheckpointDaemon, workspace: Path) -> None:
    replace(workspace)
    name = str(workspace)
    for request in (wire.Checkpoint(name, "two"), wire.Rollback(name, "one"), wire.Recover(name)):
        daemon.refuses("InvalidPath", REPLACED, request)
    assert os.listdir(workspace) == ["other"]
    assert daemon.ids(workspace) == ["one"]
    daemon.allow(f"{workspace.name}: something else than the link")


def test_init_adopts_what_replaced_it(daemon: CheckpointDaemon, workspace: Path) -> None:
    ws_id = daemon.init(workspace)
    replace(workspace)
    assert daemon.init(workspace) == ws_id
    daemon.checkpoint(workspace, "two")
    assert daemon.ids(workspace) == ["one", "two"]
    daemon.rollback(workspace, "one")
    assert os.listdir(workspace) == ["file"]
    daemon.rollback(workspace, "two")
    assert (workspace / "other").read_text() == "other\n"


@pytest.mark.parametrize("other", ["file", "link"])
def test_something_else_than_a_directory_at_the_path(daemon: CheckpointDaemon, workspace: Path, other: str) -> None:
    workspace.rename(workspace.with_name("away"))
    if other == "file":
        workspace.touch()
    else:
        workspace.symlink_to("/etc")
    daemon.refuses("InvalidPath", REPLACED, wire.Rollback(str(workspace), "one"))
    daemon.refuses("InvalidPath", REPLACED, wire.Recover(str(workspace)))
    workspace.unlink()
    workspace.with_name("away").rename(workspace)
    daemon.rollback(workspace, "one")


def test_a_workspace_that_is_gone(daemon: CheckpointDaemon, workspace: Path) -> None:
    remove(workspace)
    daemon.refuses("InvalidPath", "path does not exist", wire.Checkpoint(str(workspace), "two"))
    daemon.refuses("InvalidPath", "path does not exist", wire.Recover(str(workspace)))
    assert daemon.ids(workspace) == ["one"]
    daemon.rollback(workspace, "one")
    assert (workspace / "file").read_text() == "first\n"
    daemon.checkpoint(workspace, "two")


def remove(workspace: Path) -> None:
    if workspace.is_symlink():
        workspace.unlink()
    else:
        shutil.rmtree(workspace)


def test_a_workspace_that_was_moved_is_another(daemon: CheckpointDaemon, workspace: Path) -> None:
    ws_id, moved = daemon.init(workspace), workspace.with_name(workspace.name + " moved")
    workspace.rename(moved)
    daemon.refuses("InvalidPath", "path does not exist", wire.Checkpoint(str(workspace), "two"))
    if moved.is_symlink():
        daemon.refuses("WorkspaceNotFound", "not found", wire.List(str(moved)))
    else:
        assert daemon.init(moved) != ws_id
    moved.rename(workspace)
    daemon.rollback(workspace, "one")


def test_a_mount_in_a_workspace(daemon: CheckpointDaemon, workspace: Path) -> None:
    below, unknown = workspace / "below", daemon.new_workspace()
    below.mkdir()
    for mountpoint in (below.resolve(), unknown):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", mountpoint], check=True)
    try:
        name = str(workspace)
        refused: list[wire.Request] = [wire.Checkpoint(name, "two"), wire.Rollback(name, "one"), wire.Recover(name)]
        refused += [wire.Init(str(unknown)), wire.Checkpoint(str(unknown), "one")]
        for request in refused:
            daemon.refuses("InvalidPath", "mounted", request)
    finally:
        for mountpoint in (below.resolve(), unknown):
            subprocess.run(["umount", mountpoint], check=True)
    daemon.rollback(workspace, "one")


def test_open_files_and_a_process_inside_hinder_nothing(daemon: CheckpointDaemon, workspace: Path) -> None:
    with (workspace / "file").open() as file, subprocess.Popen(["sleep", "60"], cwd=workspace) as inside:
        daemon.rollback(workspace, "one")
        assert file.read() == "first\n"
        daemon.checkpoint(workspace, "two")
        inside.kill()


def test_what_chattr_protects_hinders_nothing(daemon: CheckpointDaemon, workspace: Path) -> None:
    """What the workspace was goes as a whole, with files that nobody may remove one by one, and directories."""
    (workspace / "protected").mkdir()
    for name in ("immutable", "appended", "protected/below"):
        (workspace / name).write_text(name)
    for flag, name in (("+i", "immutable"), ("+a", "appended"), ("+i", "protected")):
        subprocess.run(["chattr", flag, workspace / name], check=True)
    daemon.checkpoint(workspace, "two")
    daemon.rollback(workspace, "one")
    assert os.listdir(workspace) == ["file"]
    daemon.rollback(workspace, "two")
    assert (workspace / "protected/below").read_text() == "protected/below"
    for name in ("one", "two"):
        assert daemon.ask(wire.Delete(str(workspace), name)) == wire.DeleteOk(name)
    daemon.expect(wire.RecoverOk, wire.Recover(str(workspace)))
    assert [name for name in os.listdir(daemon.area) if name.startswith(".")] == []


@pytest.mark.parametrize("person", [ALICE, ROOT])
def test_who_goes_on_working_in_what_was_rolled_back_hinders_nothing(daemon: CheckpointDaemon, person: Person) -> None:
    """Somebody stays in a directory of the old tree, and makes and removes files there all the time.

    What they make at the very end is left to the next operation, which is said.
    """
    daemon.allow("some of what the workspace was is left: .*deeper")
    workspace = daemon.new_workspace(ALICE.uid)
    below = workspace / "below/deeper"
    below.mkdir(parents=True)
    for each in (below, below.parent):
        os.chown(each, ALICE.uid, ALICE.gid)
    daemon.checkpoint(workspace, "one")
    for _ in range(5):
        stop = daemon.base / f"stop {workspace.name}"
        worker = threading.Thread(target=person.does, args=(work_in, below, stop))
        worker.start()
        wait_until((below / "begun").exists, "the work")
        try:
            daemon.rollback(workspace, "one")
        finally:
            stop.touch()
            worker.join()
            stop.unlink()
    daemon.expect(wire.RecoverOk, wire.Recover(str(workspace)))
    assert [name for name in os.listdir(daemon.area) if name.startswith(".")] == []


def work_in(directory: Path, stop: Path) -> None:
    os.chdir(directory)
    while not stop.exists():
        with contextlib.suppress(OSError):
            for number in range(10):
                Path(f"file{number}").touch()
            Path("begun").touch()
            for number in range(10):
                Path(f"file{number}").unlink()


def test_a_link_into_itself_is_kept(daemon: CheckpointDaemon) -> None:
    workspace = daemon.new_workspace()
    (workspace / "absolute").symlink_to(workspace / "file")
    daemon.checkpoint(workspace, "one")
    assert os.readlink(workspace / "absolute") == str(workspace / "file")
    (workspace / "absolute").unlink()
    daemon.rollback(workspace, "one")
    assert (workspace / "absolute").read_text() == "first\n"


def test_recover_leaves_nothing_behind(daemon: CheckpointDaemon, workspace: Path) -> None:
    ws_id = daemon.init(workspace)
    daemon.expect(wire.RecoverOk, wire.Recover(str(workspace)))
    left = [path for path in daemon.state.rglob("*") if ws_id in path.name]
    assert left == [] and ws_id not in (daemon.state / "state.json").read_text()
    assert [name for name in os.listdir(daemon.area) if ws_id in name] == []
    daemon.refuses("WorkspaceNotFound", "not found", wire.List(ws_id))
    assert daemon.init(workspace) == ws_id
    assert daemon.ids(workspace) == []


def test_a_mapping_that_is_written_to_is_seen(daemon: CheckpointDaemon, workspace: Path) -> None:
    """A store to a page that is dirty already moves no time; a snapshot must notice it all the same."""
    file = workspace / "mapped"
    file.write_bytes(bytes(8192))
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 8192) as mapped:
        for letter in "abcd":
            mapped[0:1] = letter.encode()
            daemon.checkpoint(workspace, f"letter-{letter}")
        mapped[0:1] = b"e"
    for letter in "abcd":
        daemon.rollback(workspace, f"letter-{letter}")
        assert file.read_bytes()[:1] == letter.encode()


def snapshot_place(daemon: CheckpointDaemon, workspace: Path, id: str) -> Path:
    ws_id = daemon.init(workspace)
    roots = [daemon.state / "snapshots", *daemon.base.glob("loop/snapshots"), *daemon.base.glob("disk/*/snapshots")]
    return next(root / ws_id / id for root in roots if (root / ws_id / id).exists())


def remove_snapshot(place: Path) -> None:
    if subprocess.run(["stat", "-f", "-c", "%T", place], capture_output=True, check=True).stdout == b"btrfs\n":
        subprocess.run(["btrfs", "-q", "subvolume", "delete", place], check=True)
    else:
        shutil.rmtree(place)


def copy_snapshot(place: Path, target: Path) -> None:
    if subprocess.run(["stat", "-f", "-c", "%T", place], capture_output=True, check=True).stdout == b"btrfs\n":
        subprocess.run(["btrfs", "-q", "subvolume", "snapshot", "-r", place, target], check=True)
    else:
        subprocess.run(["cp", "-a", place, target], check=True)


def test_snapshots_without_a_record_and_records_without_a_snapshot(daemon: CheckpointDaemon, workspace: Path) -> None:
    daemon.checkpoint(workspace, "two")
    place = snapshot_place(daemon, workspace, "one")
    copy_snapshot(place, place.with_name("orphan"))
    remove_snapshot(place)
    daemon.allow("'orphan' had no record")
    daemon.restart()
    entries = {entry.id: entry.meta for entry in daemon.expect(wire.ListOk, wire.List(str(workspace))).snapshots}
    assert set(entries) == {"one", "two", "orphan"}
    assert (entries["orphan"].message, entries["orphan"].pinned) == ("recovered at start", True)
    assert entries["one"].missing and not entries["two"].missing
    name = str(workspace)
    daemon.refuses("SnapshotNotFound", "delete it", wire.Rollback(name, "one"))
    daemon.refuses("SnapshotNotFound", "missing", wire.Diff(name, "one", "two"))
    assert daemon.ask(wire.Delete(name, "one")) == wire.DeleteOk("one")
    daemon.rollback(workspace, "orphan")
    assert daemon.ids(workspace) == ["two", "orphan"]


def test_a_snapshot_that_is_back_is_not_missing_any_more(daemon: CheckpointDaemon, workspace: Path) -> None:
    bucket = snapshot_place(daemon, workspace, "one").parent
    aside = bucket.rename(bucket.with_name("aside"))
    daemon.restart()
    name = str(workspace)
    assert daemon.expect(wire.ListOk, wire.List(name)).snapshots[0].meta.missing
    assert daemon.expect(wire.StatusOk, wire.Status(name)).report.workspaces[0].snapshot_count == 1
    aside.rename(bucket)
    daemon.restart()
    assert not daemon.expect(wire.ListOk, wire.List(name)).snapshots[0].meta.missing
    daemon.rollback(workspace, "one")


def test_nothing_is_forgotten_that_was_busy_while_another_was_registered(
    daemon: CheckpointDaemon, workspace: Path
) -> None:
    other = daemon.new_workspace()
    with Writer(workspace / "file"):
        busy = Asker(daemon.socket, wire.Checkpoint(str(workspace), "two"))
        busy.start()
        daemon.init(other)
        daemon.kill()
        busy.join()
    daemon.start()
    assert daemon.ids(other) == []
    assert "one" in daemon.ids(workspace)


def test_no_descriptor_is_kept(daemon: CheckpointDaemon, workspace: Path) -> None:
    """Of a watch, a lock or a tree, whatever was done or refused; a workspace has one watch, or none is free."""
    name, before = str(workspace), 0
    for _ in range(3):
        other = daemon.new_workspace()
        for request in (
            wire.Rollback(name, "one"),
            wire.Checkpoint(name, "one"),
            wire.Checkpoint(name, "two"),
            wire.Diff(name, "one", "two"),
            wire.Delete(name, "two"),
            wire.Init(str(other)),
            wire.Checkpoint(str(other), "one"),
            wire.Recover(str(other)),
            wire.Recover(str(other)),
        ):
            daemon.ask(request)
        opened = descriptors(daemon)
        watches = opened.count("anon_inode:inotify")
        assert watches <= len(daemon.expect(wire.StatusOk, wire.Status()).report.workspaces)
        found, before = before, len(opened) - watches
        assert found in (0, before)


def descriptors(daemon: CheckpointDaemon) -> list[str]:
    """What the daemon's descriptors lead to."""
    assert daemon.process is not None
    return [os.readlink(each) for each in Path(f"/proc/{daemon.process.pid}/fd").iterdir()]


def test_a_missing_pinned_snapshot_needs_no_force(daemon: CheckpointDaemon) -> None:
    workspace = daemon.new_workspace()
    daemon.checkpoint(workspace, "one", pin=True)
    remove_snapshot(snapshot_place(daemon, workspace, "one"))
    daemon.restart()
    assert daemon.ask(wire.Delete(str(workspace), "one")) == wire.DeleteOk("one")


def test_everything_is_there_after_a_restart(daemon: CheckpointDaemon, workspace: Path) -> None:
    daemon.checkpoint(workspace, "two", message="why", metadata="[1]", pin=True)
    before = daemon.ask(wire.List(str(workspace)))
    daemon.restart()
    assert daemon.ask(wire.List(str(workspace))) == before
    daemon.rollback(workspace, "one")
    daemon.kill()
    daemon.start()
    assert daemon.ask(wire.List(str(workspace))) == before
    daemon.checkpoint(workspace, "three")


@pytest.mark.parametrize("content", [None, "{", '{"version":1}'])
def test_a_state_file_that_is_lost(daemon: CheckpointDaemon, workspace: Path, content: str | None) -> None:
    """Workspaces whose registration is lost are found by their indexes, or come back with an init."""
    ws_id = daemon.init(workspace)
    daemon.allow("the state file is no use|something else than the link")
    assert daemon.stop() == 0
    file = daemon.state / "state.json"
    kept = file.read_bytes()
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    daemon.start()
    assert daemon.init(workspace) == ws_id
    assert daemon.ids(workspace) == ["one"]
    daemon.rollback(workspace, "one")
    assert daemon.stop() == 0
    file.write_bytes(kept)
    daemon.start()
    assert daemon.ids(workspace) == ["one"]


def test_an_index_that_is_spoilt(daemon: CheckpointDaemon, workspace: Path) -> None:
    ws_id = daemon.init(workspace)
    daemon.allow("cannot be read, its snapshots are adopted|had no record")
    assert daemon.stop() == 0
    (daemon.state / "indexes" / ws_id / "index.json").write_text("{")
    daemon.start()
    assert daemon.ids(workspace) == ["one"]
    daemon.rollback(workspace, "one")
