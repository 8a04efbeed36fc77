"""What needs to be shown with one back end only (spec 6.3, 6.5)."""

from backend.checkpoints import wire
from tests.checkpointing import CheckpointDaemon, disk, scratch


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
