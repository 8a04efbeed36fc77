"""What each request does and answers (spec 6.3; notes 2), against a running daemon of every back end."""

import os
import re
import time
from pathlib import Path

import pytest

from backend.checkpoints import wire
from backend.checkpoints.times import parse_timestamp
from tests.checkpointing import CheckpointDaemon, Writer
from tests.socket.checkpoints.conftest import EACH_WAY

pytestmark = EACH_WAY


# --- Init -----------------------------------------------------------------------------------------------------------


def test_init_answers_the_id_and_answers_it_again(daemon: CheckpointDaemon, workspace: Path) -> None:
    ws_id = daemon.init(workspace)
    assert re.fullmatch(r"ws-[0-9a-f]{6}(-\d+)?", ws_id)
    assert daemon.init(workspace) == ws_id
    assert daemon.init(Path(f"{workspace}///")) == ws_id
    assert daemon.expect(wire.InitOk, wire.Init(ws_id)).ws_id == ws_id
    assert (workspace / "file").read_text() == "first\n"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "workspace path is empty"),
        ("  ", "workspace path is empty"),
        ("/", "root '/' is not a supported workspace; use a specific subdirectory"),
        ("/no/such/place", "path does not exist: /no/such/place"),
        ("/etc/passwd", "not a directory: /etc/passwd"),
        ("a\0b", "path does not exist"),
        ("/a" * 4_000_000, "path does not exist"),
    ],
)
def test_init_refuses(daemon: CheckpointDaemon, path: str, words: str) -> None:
    answer = daemon.expect(wire.Error, wire.Init(path))
    assert answer.code is wire.ErrorCode.InvalidPath
    assert words in answer.message


def test_snapshots_cannot_be_put_under_protection(daemon: CheckpointDaemon, workspace: Path) -> None:
    daemon.checkpoint(workspace, "one")
    mount_path = daemon.expect(wire.ConfigOk, wire.Config()).config.mount_path
    daemon.refuses("InvalidPath", f"path is inside mount_path ({mount_path})", wire.Init(mount_path))
    daemon.refuses("InvalidPath", "path holds the snapshots", wire.Init(str(daemon.state.parent)))


# --- names ----------------------------------------------------------------------------------------------------------


def test_a_workspace_has_many_names_and_some_that_are_none(daemon: CheckpointDaemon, workspace: Path) -> None:
    ws_id = daemon.init(workspace)
    (workspace / "below").mkdir()
    for name in (ws_id, str(workspace), f"{workspace}/", f"{workspace.parent}/./{workspace.name}"):
        assert daemon.expect(wire.StatusOk, wire.Status(name)).report.workspaces[0].ws_id == ws_id
    for name in ("", " ", "ws-ffffff", f"{workspace}/below", "/no/such/place", "a\0b", workspace.name):
        daemon.refuses("WorkspaceNotFound", f"workspace not found: {name}", wire.List(name))
        if name.strip():
            daemon.refuses("WorkspaceNotFound", "workspace not found", wire.Status(name))


def test_a_live_tree_leads_to_its_workspace_and_other_links_to_nothing(
    daemon: CheckpointDaemon, workspace: Path
) -> None:
    ws_id, live = daemon.init(workspace), workspace.resolve()
    assert daemon.expect(wire.InitOk, wire.Init(str(live))).ws_id == ws_id
    second = workspace.with_name(f"{workspace.name} too")
    second.symlink_to(workspace)
    for name in (second, f"{workspace}/../{workspace.name}", live):
        if workspace.is_symlink():
            daemon.refuses("WorkspaceNotFound", "workspace not found", wire.List(str(name)))
        else:
            daemon.expect(wire.ListOk, wire.List(str(name)))
    assert daemon.expect(wire.InitOk, wire.Init(str(second))).ws_id == ws_id


def test_a_path_that_the_protocol_has_no_name_for(daemon: CheckpointDaemon) -> None:
    directory = Path(os.fsdecode(os.fsencode(daemon.new_workspace()) + b"\xff"))
    directory.mkdir()
    link = directory.with_name(f"to {daemon.new_workspace().name}")
    link.symlink_to(directory)
    daemon.refuses("InvalidPath", "not UTF-8", wire.Init(str(link)))


# --- Checkpoint -----------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_an_unknown_directory_registers_it(daemon: CheckpointDaemon, workspace: Path) -> None:
    daemon.checkpoint(workspace, "one")
    assert daemon.ids(workspace) == ["one"]
    daemon.refuses("InvalidPath", "path does not exist", wire.Checkpoint("/no/such/place", "one"))


def test_an_id_is_taken_once_in_a_workspace(daemon: CheckpointDaemon, workspace: Path) -> None:
    other = daemon.new_workspace()
    daemon.checkpoint(workspace, "one")
    again = wire.Checkpoint(str(workspace), "one")
    daemon.refuses("SnapshotAlreadyExists", "snapshot id 'one' already exists in workspace", again)
    daemon.checkpoint(other, "one")


def test_an_empty_workspace_is_skipped_and_registered(daemon: CheckpointDaemon, workspace: Path) -> None:
    (workspace / "file").unlink()
    skipped = daemon.expect(wire.CheckpointSkipped, wire.Checkpoint(str(workspace), "one"))
    assert skipped.reason == "Empty workspace, no snapshot created."
    assert daemon.ids(workspace) == []
    (workspace / ".hidden").touch()
    daemon.checkpoint(workspace, "one")


def test_nothing_changed_is_no_reason_to_skip(daemon: CheckpointDaemon, workspace: Path) -> None:
    daemon.checkpoint(workspace, "one")
    daemon.checkpoint(workspace, "two")
    assert daemon.ids(workspace) == ["one", "two"]


BAD_IDS = ["", "../evil", "a/b", "/", ".", "..", ".hidden", "-dash", "a\0b", "new\nline", "\x7f", "x" * 256, "é" * 128]


@pytest.mark.parametrize("id", BAD_IDS)
def test_bad_ids_make_nothing(daemon: CheckpointDaemon, workspace: Path, id: str) -> None:
    daemon.init(workspace)
    daemon.refuses("InvalidPath", "bad snapshot id", wire.Checkpoint(str(workspace), id))
    assert daemon.ids(workspace) == []
    daemon.refuses("SnapshotNotFound", "snapshot not found", wire.Rollback(str(workspace), id))


@pytest.mark.parametrize("id", ["a", "x" * 255, "é" * 127, "with space", "a..b", "工作区", "~", "%", "a-", "*"])
def test_good_ids(daemon: CheckpointDaemon, workspace: Path, id: str) -> None:
    daemon.checkpoint(workspace, id)
    daemon.rollback(workspace, id)
    assert daemon.ids(workspace) == [id]
    assert daemon.expect(wire.DeleteOk, wire.Delete(str(workspace), id)).target == id


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (None, None),
        ("null", None),
        ('{"b": 1, "a": [1e3, 1.0, true]}', '{"a":[1000.0,1.0,true],"b":1}'),
        ('"\\u5de5"', '"工"'),
        ('{"ab":1,"a":{"é":2,"z":3}}', '{"a":{"z":3,"é":2},"ab":1}'),
        (" [ ] ", "[]"),
    ],
)
def test_metadata_is_kept_as_compact_json(
    daemon: CheckpointDaemon, workspace: Path, text: str | None, kept: str | None
) -> None:
    daemon.checkpoint(workspace, "one", message="why", metadata=text, pin=True)
    (entry,) = daemon.expect(wire.ListOk, wire.List(str(workspace))).snapshots
    assert (entry.id, entry.workspace) == ("one", str(workspace))
    assert (entry.meta.message, entry.meta.metadata, entry.meta.pinned, entry.meta.missing) == (
        "why",
        kept,
        True,
        False,
    )
    assert abs(parse_timestamp(entry.meta.created_at) - time.time_ns()) < 60_000_000_000


@pytest.mark.parametrize("text", ["", "{", "{'a':1}", "NaN", "[1e999]", "[" * 200 + "]" * 200, '"\\ud800"', "1 2"])
def test_bad_metadata_makes_nothing(daemon: CheckpointDaemon, workspace: Path, text: str) -> None:
    daemon.refuses("InternalError", "metadata", wire.Checkpoint(str(workspace), "one", None, text))
    daemon.checkpoint(workspace, "one")
    assert daemon.ids(workspace) == ["one"]


# --- Rollback, Delete -----------------------------------------------------------------------------------------------


def test_rollback_answers_the_workspace_and_the_snapshot(daemon: CheckpointDaemon, workspace: Path) -> None:
    ws_id = daemon.init(workspace)
    daemon.checkpoint(workspace, "one")
    daemon.checkpoint(workspace, "one-and-a-half")
    daemon.checkpoint(workspace, "two")
    assert daemon.ask(wire.Rollback(str(workspace), "one")) == wire.RollbackOk(ws_id, "one")
    assert daemon.ask(wire.Rollback(ws_id, "tw")) == wire.RollbackOk(ws_id, "two")
    assert daemon.ids(workspace) == ["one", "one-and-a-half", "two"]


REFERENCES = [
    ("three", "snapshot not found: three"),
    ("one-", "ambiguous snapshot prefix 'one-': 2 matches"),
    ("", "ambiguous snapshot prefix '': 3 matches"),
]


@pytest.mark.parametrize(("reference", "words"), REFERENCES)
def test_references_that_mean_nothing(daemon: CheckpointDaemon, workspace: Path, reference: str, words: str) -> None:
    for id in ("one-a", "one-b", "two"):
        daemon.checkpoint(workspace, id)
    name = str(workspace)
    for request in (wire.Rollback(name, reference), wire.Delete(name, reference), wire.Diff(name, "two", reference)):
        daemon.refuses("SnapshotNotFound", words, request)


def test_a_rollback_registers_nothing(daemon: CheckpointDaemon, workspace: Path) -> None:
    daemon.refuses("WorkspaceNotFound", "workspace not found", wire.Rollback(str(workspace), "one"))
    daemon.refuses("WorkspaceNotFound", "workspace not found", wire.List(str(workspace)))


def test_a_pinned_snapshot_is_deleted_by_force_alone(daemon: CheckpointDaemon, workspace: Path) -> None:
    daemon.checkpoint(workspace, "one", pin=True)
    words = "Snapshot is pinned, use --force to confirm deletion"
    daemon.refuses("ConfirmationRequired", words, wire.Delete(str(workspace), "one"))
    assert daemon.ids(workspace) == ["one"]
    assert daemon.ask(wire.Delete(str(workspace), "on", True)) == wire.DeleteOk("one")
    assert daemon.ids(workspace) == []
    daemon.checkpoint(workspace, "one")


def test_a_delete_without_a_workspace_needs_one_match(daemon: CheckpointDaemon, workspace: Path) -> None:
    other, unique = daemon.new_workspace(), workspace.name
    for each in (workspace, other):
        daemon.checkpoint(each, f"{unique}-both")
    daemon.checkpoint(other, f"{unique}-x")
    daemon.checkpoint(other, f"{unique}-xy")
    several = "matches in multiple workspaces, please specify --workspace/-w"
    daemon.refuses("SnapshotNotFound", several, wire.Delete(None, f"{unique}-both"))
    daemon.refuses("SnapshotNotFound", several, wire.Delete(None, unique))
    daemon.refuses("SnapshotNotFound", "snapshot not found: no such", wire.Delete(None, "no such"))
    assert daemon.ask(wire.Delete(None, f"{unique}-x")) == wire.DeleteOk(f"{unique}-x")
    assert daemon.ids(other) == [f"{unique}-both", f"{unique}-xy"]


# --- List, Status, Cleanup, Health ----------------------------------------------------------------------------------


def test_lists_are_in_the_order_of_time(daemon: CheckpointDaemon, workspace: Path) -> None:
    other = daemon.new_workspace()
    for path, id in ((workspace, "z"), (other, "m"), (workspace, "a")):
        daemon.checkpoint(path, id)
    assert daemon.ids(workspace) == ["z", "a"]
    everything = daemon.expect(wire.ListOk, wire.List(None, "json")).snapshots
    mine = [entry.id for entry in everything if entry.workspace in (str(workspace), str(other))]
    assert mine == ["z", "m", "a"]
    times = [parse_timestamp(entry.meta.created_at) for entry in everything]
    assert times == sorted(times)


def test_status_counts(daemon: CheckpointDaemon, workspace: Path) -> None:
    ws_id = daemon.init(workspace)
    daemon.checkpoint(workspace, "one")
    report = daemon.expect(wire.StatusOk, wire.Status()).report
    assert wire.WorkspaceInfo(ws_id, str(workspace), 1) in report.workspaces
    assert 0 < report.fs_used_bytes < report.fs_total_bytes
    assert daemon.expect(wire.StatusOk, wire.Status(ws_id)).report.workspaces == (
        wire.WorkspaceInfo(ws_id, str(workspace), 1),
    )


@pytest.mark.parametrize(
    ("keep", "removed"), [(None, []), (3, []), (2, ["b"]), (1, ["b", "c"]), (0, ["b", "c", "e"]), (4294967295, [])]
)
def test_cleanup_keeps_the_newest_and_the_pinned(
    daemon: CheckpointDaemon, workspace: Path, keep: int | None, removed: list[str]
) -> None:
    for id in "abcde":
        daemon.checkpoint(workspace, id, pin=id in "ad")
    answer = daemon.expect(wire.CleanupOk, wire.Cleanup(str(workspace), keep))
    assert list(answer.removed) == removed
    assert daemon.ids(workspace) == [id for id in "abcde" if id not in removed]


def test_health_counts_only_what_is_over_the_limit(daemon: CheckpointDaemon) -> None:
    health = daemon.expect(wire.HealthAdvisoryOk, wire.HealthAdvisory())
    assert health.over_limit_workspace_count == 0
    assert 0 < health.fs_used_bytes < health.fs_total_bytes


# --- Diff -----------------------------------------------------------------------------------------------------------


def changed(workspace: Path) -> None:
    (workspace / "file").write_text("second\n")
    (workspace / "added").touch()
    (workspace / "new").mkdir()
    (workspace / "new/工作 区").write_text("x")
    (workspace / "link").symlink_to("file")
    (workspace / "gone").unlink()
    (workspace / "gone directory/x").unlink()
    (workspace / "gone directory").rmdir()
    (workspace / "mode only").chmod(0o600)
    os.chown(workspace / "mode only", 1001, 1001)
    os.utime(workspace / "mode only", (1, 1))


def planted(daemon: CheckpointDaemon) -> Path:
    workspace = daemon.new_workspace()
    (workspace / "gone directory").mkdir()
    for name in ("gone", "gone directory/x", "mode only", "same"):
        (workspace / name).write_text(name)
    return workspace


def test_diff_says_what_was_added_changed_and_deleted(daemon: CheckpointDaemon) -> None:
    workspace = planted(daemon)
    daemon.checkpoint(workspace, "one")
    changed(workspace)
    daemon.checkpoint(workspace, "two")
    changes = daemon.expect(wire.DiffOk, wire.Diff(str(workspace), "one", "two")).changes
    added, deleted, modified = wire.ChangeType.Added, wire.ChangeType.Deleted, wire.ChangeType.Modified
    assert sorted(changes, key=lambda change: change.path) == [
        wire.DiffEntry("added", added),
        wire.DiffEntry("file", modified),
        wire.DiffEntry("gone", deleted),
        wire.DiffEntry("gone directory", deleted, "directory"),
        wire.DiffEntry("gone directory/x", deleted),
        wire.DiffEntry("link", added, "symlink"),
        wire.DiffEntry("new", added, "directory"),
        wire.DiffEntry("new/工作 区", added),
    ]
    assert daemon.ask(wire.Diff(str(workspace), "two", "two")) == wire.DiffOk(())


# --- writers --------------------------------------------------------------------------------------------------------


def test_a_workspace_in_which_somebody_writes_is_in_conflict(daemon: CheckpointDaemon, workspace: Path) -> None:
    daemon.init(workspace)
    for name in ("file", "below/file"):
        (workspace / name).parent.mkdir(exist_ok=True)
        conflict = "Workspace has active write operations. Please wait and retry."
        with Writer(workspace / name):
            daemon.refuses("WriteLockConflict", conflict, wire.Checkpoint(str(workspace), "one"))
    daemon.checkpoint(workspace, "one")


def test_a_writer_is_noticed_after_a_rollback_too(daemon: CheckpointDaemon, workspace: Path) -> None:
    daemon.checkpoint(workspace, "one")
    daemon.rollback(workspace, "one")
    with Writer(workspace / "file"):
        daemon.refuses("WriteLockConflict", "active write operations", wire.Checkpoint(str(workspace), "two"))


def test_a_file_that_is_merely_open_is_no_conflict(daemon: CheckpointDaemon, workspace: Path) -> None:
    daemon.init(workspace)
    with (workspace / "open").open("w") as file:
        file.write("x")
        file.flush()
        daemon.checkpoint(workspace, "one")


def test_a_writer_is_noticed_in_what_replaced_a_workspace(daemon: CheckpointDaemon, workspace: Path) -> None:
    daemon.init(workspace)
    workspace.rename(workspace.with_name(f"{workspace.name} away"))
    workspace.mkdir()
    (workspace / "file").touch()
    daemon.init(workspace)
    with Writer(workspace / "file"):
        daemon.refuses("WriteLockConflict", "active write operations", wire.Checkpoint(str(workspace), "one"))
