"""What an operation on a workspace leaves behind as something fails is neither forgotten nor taken for another's."""

import errno
import os
from fcntl import flock
from pathlib import Path
from typing import Any

import pytest

from backend.checkpoints.backends import Choice
from backend.checkpoints.errors import (
    CheckpointError,
    ConfirmationRequired,
    DaemonRunning,
    InternalError,
    InvalidPath,
    WriteLockConflict,
)
from backend.checkpoints.identity import Identity
from backend.checkpoints.snapshots.btrfs import BtrfsSnapshots
from backend.checkpoints.snapshots.walking import TreeChanged
from backend.checkpoints.state import StateDirectory
from backend.checkpoints.workspace import RECOVERED, Workspace
from tests.checkpointing import Kind
from tests.crash.checkpoint_scenes import (
    Place,
    act_delete,
    act_recover,
    act_rollback,
    nothing_is_left_over,
    place_on,
    prepared,
    restorable,
)
from tests.trees import describe

REFUSALS = {
    "disk": OSError(errno.EIO, os.strerror(errno.EIO)),
    "user": TreeChanged("deep/inside"),
    "mount": InvalidPath("something is mounted inside: below"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("meanwhile", ["nothing", "checkpoint", "refused rollback"])
def test_a_tree_that_cannot_be_removed_is_known_until_it_is_gone(
    place: Place, monkeypatch: pytest.MonkeyPatch, refusal: str, meanwhile: str
) -> None:
    """Over other operations and a restart."""
    scene = prepared(place, act_rollback, f"left-{refusal}-{meanwhile}")
    workspace = place.engine().find(str(scene.path), 0)

    def refuse(_owned: Identity | None) -> None:
        raise REFUSALS[refusal]

    with monkeypatch.context() as broken:
        broken.setattr(workspace.snapshots, "clear", refuse)
        workspace.rollback("one")
        assert describe(scene.path) == scene.trees["one"]
        if meanwhile == "checkpoint":
            workspace.checkpoint("three", None, None, False)
            workspace.delete("three", force=False)
        elif meanwhile == "refused rollback":
            broken.setattr(workspace.snapshots, "restore", failing)
            with pytest.raises(CheckpointError):
                workspace.rollback("two")
    engine = place.engine()
    nothing_is_left_over(place, engine)
    restorable(scene, engine, {"one", "two"})
    scene.remove()


def failing(*_arguments: Any) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def removes_the_first_only(workspace: Workspace) -> None:
    """A disk that fails once a snapshot has gone."""
    real, left = workspace.snapshots.delete, [True]

    def delete(id: str) -> None:
        if not left:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        left.clear()
        real(id)

    workspace.snapshots.delete = delete  # type: ignore[method-assign]


def test_a_recover_that_fails_in_the_middle_leaves_whole_snapshots_or_none() -> None:
    with place_on("copy") as place:
        scene = prepared(place, act_recover, "half")
        engine = place.engine()
        workspace = engine.find(str(scene.path), 0)
        removes_the_first_only(workspace)
        with pytest.raises(CheckpointError):
            engine.recover(workspace)
        workspace.look_for_snapshots()
        left = {id for id, record in workspace.catalogue.snapshots.items() if not record.missing}
        assert len(left) == 1
        restorable(scene, engine, left)


def test_init_gives_up_a_recover_that_failed() -> None:
    with place_on("copy") as place:
        scene = prepared(place, act_recover, "kept")
        engine = place.engine()
        workspace = engine.find(str(scene.path), 0)
        workspace.snapshots.destroy = failing  # type: ignore[method-assign]
        with pytest.raises(CheckpointError):
            engine.recover(workspace)
        engine.init(str(scene.path), 0)
        restorable(scene, place.engine(), {"one", "two"})


def test_a_snapshot_whose_disk_is_mounted_late_is_not_missing_any_more(place: Place) -> None:
    """Above all it is not deleted as if it were a mere record."""
    scene = prepared(place, act_delete, "late")
    workspace = place.engine().find(str(scene.path), 0)
    workspace.checkpoint("pinned", None, None, True)
    bucket = workspace.snapshots.bucket
    elsewhere = bucket.rename(bucket.with_name("elsewhere"))
    engine = place.engine()
    workspace = engine.find(str(scene.path), 0)
    assert all(entry.meta.missing for entry in workspace.entries())
    elsewhere.rename(bucket)
    assert not any(entry.meta.missing for entry in workspace.entries())
    with pytest.raises(ConfirmationRequired):
        workspace.delete("pinned", force=False)
    restorable(scene, engine, {"one", "two"})
    scene.remove()


def test_a_workspace_that_cannot_be_loaded_hinders_no_other_and_is_not_forgotten() -> None:
    """Its back end is none of ours, say."""
    with place_on("copy") as place:
        scene, other = prepared(place, act_rollback, "unknown"), prepared(place, act_rollback, "other")
        state = place.state / "state.json"
        state.write_text(state.read_text().replace('"Copy"', '"Unknown"', 1))
        engine = place.engine()
        restorable(other, engine, {"one", "two"})
        with pytest.raises(InternalError, match="could not be loaded"):
            engine.init(str(scene.path), 0)
        engine.recover(engine.find(str(other.path), 0))
        state.write_text(state.read_text().replace('"Unknown"', '"Copy"'))
        restorable(scene, place.engine(), {"one", "two"})


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("name", ["index.json", "intent.json"])
def test_what_cannot_be_read_of_one_workspace_hinders_no_other(name: str, registered: bool) -> None:
    with place_on("copy") as place:
        scene, other = prepared(place, act_rollback, "unreadable"), prepared(place, act_rollback, "other")
        index = place.state / "indexes" / place.engine().find(str(scene.path), 0).ws_id
        file = index.rename(index.with_name("ws-000000")) / name if not registered else index / name
        file.unlink(missing_ok=True)
        file.mkdir()
        restorable(other, place.engine(), {"one", "two"})
        assert file.is_dir()


def test_an_index_with_a_time_that_is_none_is_one_that_cannot_be_read(place: Place) -> None:
    """Nothing could be sorted by it, and no cleanup come to an end; its snapshots are adopted."""
    scene = prepared(place, act_rollback, "times")
    workspace = place.engine().find(str(scene.path), 0)
    index = place.state / "indexes" / workspace.ws_id / "index.json"
    time = workspace.catalogue.snapshots["one"].created_at
    index.write_text(index.read_text().replace(time, "yesterday"))
    engine = place.engine()
    entries = engine.find(str(scene.path), 0).entries()
    assert {(entry.id, entry.meta.message) for entry in entries} == {("one", RECOVERED), ("two", RECOVERED)}
    restorable(scene, engine, {"one", "two"})
    scene.remove()


def test_a_link_to_a_link_is_no_workspace_and_harms_none() -> None:
    """The registration is lost, and the link to the live tree is reached by another link."""
    with place_on("btrfs") as place:
        scene = prepared(place, act_rollback, "linked")
        (place.state / "state.json").unlink()
        engine = place.engine()
        link = place.area / "link"
        link.symlink_to(scene.path)
        with pytest.raises(InvalidPath):
            engine.init(str(link), 0)
        assert describe(scene.path) == scene.trees["now"]
        engine.init(str(scene.path), 0)
        restorable(scene, engine, {"one", "two"})


def test_a_path_that_is_being_registered_is_not_registered_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes while it is a link already, of which nobody knows yet, would remove what it is a copy of."""
    with place_on("btrfs") as place:
        path = place.area / "busy"
        path.mkdir()
        (path / "file").write_text("first\n")
        before, engine = describe(path), place.engine()
        real = BtrfsSnapshots._is_moved

        def come_meanwhile(self: BtrfsSnapshots, *arguments: Any) -> bool:
            with pytest.raises(WriteLockConflict):
                engine.init(str(path), 0)
            return real(self, *arguments)

        monkeypatch.setattr(BtrfsSnapshots, "_is_moved", come_meanwhile)
        engine.init(str(path), 0)
        assert (describe(path), path.is_symlink()) == (before, True)
        assert engine.find(str(path), 0).checkpoint("one", None, None, False)


class SameHash:
    """``hashlib.sha256`` of which all paths get one id."""

    def __init__(self, _data: bytes) -> None:
        pass

    def hexdigest(self) -> str:
        return "abcdef" * 10


@pytest.mark.parametrize("kind", ["copy", "btrfs"])
def test_two_paths_that_are_registered_at_once_never_get_one_id(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    with place_on(kind) as place:
        engine = place.engine()
        found: list[str] = []
        paths = [place.area / name for name in ("first", "second")]
        for path in paths:
            path.mkdir()
            (path / "file").write_text(path.name)
        real = Workspace.move_in

        def come_meanwhile(self: Workspace, choice: Choice) -> None:
            if not found:
                found.append("begun")
                found.append(engine.init(str(paths[1]), 0).ws_id)
            real(self, choice)

        monkeypatch.setattr("backend.checkpoints.workspaces.hashlib.sha256", SameHash)
        monkeypatch.setattr(Workspace, "move_in", come_meanwhile)
        ids = {engine.init(str(paths[0]), 0).ws_id, found[1]}
        assert len(ids) == 2
        assert [(path / "file").read_text() for path in paths] == ["first", "second"]
        assert {workspace.path for workspace in place.engine().all()} == {str(path) for path in paths}


def test_a_lock_that_an_ending_daemon_removes_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes next makes another file, and both would hold a lock."""
    directory = StateDirectory(tmp_path / "state")
    directory.prepare()

    def end_meanwhile(fd: int, how: int) -> None:
        (directory.root / "daemon.lock").unlink()
        flock(fd, how)

    with monkeypatch.context() as ending:
        ending.setattr("backend.checkpoints.state.fcntl.flock", end_meanwhile)
        with pytest.raises(DaemonRunning), directory.locked():
            pass
    with directory.locked(), pytest.raises(DaemonRunning), directory.locked():
        pass
