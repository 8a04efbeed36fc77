"""A full disk in every operation: DiskSpaceInsufficient and nothing changed, or done (spec 6.3)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from backend.checkpoints import wire
from tests.checkpointing import MIB, CheckpointDaemon, Kind, checkpoint_daemon
from tests.trees import describe

SIZES: dict[Kind, int] = {"copy": 24 * MIB, "reflink": 320 * MIB, "btrfs": 128 * MIB}


@pytest.fixture(params=SIZES)
def daemon(request: pytest.FixtureRequest) -> Iterator[CheckpointDaemon]:
    with checkpoint_daemon(request.param, size=SIZES[request.param]) as running:
        running.allow("No space left|could not be written|was not cleaned up|is left")
        yield running


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """No space is left on a disk, to the last block."""
    file = disk / "filler"
    with file.open("wb", buffering=0) as filler:
        for size in (MIB, 4096, 1):
            with suppress(OSError):
                while True:
                    filler.write(os.urandom(size))
                    if size == MIB:
                        os.fsync(filler.fileno())
    os.sync()
    try:
        yield
    finally:
        file.unlink()
        os.sync()


def test_every_operation(daemon: CheckpointDaemon) -> None:
    """Each is refused whole or done whole; once there is space again everything works."""
    workspace, unknown = daemon.new_workspace(), daemon.new_workspace()
    for each in (workspace, unknown):
        (each / "big").write_bytes(os.urandom(MIB))
    daemon.checkpoint(workspace, "one")
    daemon.checkpoint(workspace, "gone")
    (workspace / "big").write_bytes(os.urandom(MIB + 1))
    before, other, name = describe(workspace), describe(unknown), str(workspace)
    with full(daemon.area.parent):
        refused_or(daemon, wire.InitOk, wire.Init(str(unknown)))
        assert describe(unknown) == other
        if refused_or(daemon, wire.CheckpointOk, wire.Checkpoint(name, "two")):
            assert daemon.ids(workspace) == ["one", "gone"]
        assert describe(workspace) == before
        if refused_or(daemon, wire.RollbackOk, wire.Rollback(name, "one")):
            assert describe(workspace) == before
        refused_or(daemon, wire.DeleteOk, wire.Delete(name, "gone"))
        daemon.expect(wire.ListOk, wire.List(name))
        daemon.expect(wire.StatusOk, wire.Status(name))
    assert describe(unknown) == other
    daemon.rollback(workspace, "one")
    daemon.checkpoint(workspace, "three")
    daemon.restart()
    assert {"one", "three"} <= set(daemon.ids(workspace))
    daemon.rollback(workspace, "three")
    with full(daemon.area.parent):
        now = describe(workspace)
        refused_or(daemon, wire.RecoverOk, wire.Recover(name))
        assert describe(workspace) == now
    assert [path for path in os.listdir(daemon.area) if path.startswith(".")] == []
    daemon.checkpoint(workspace, "four")


def test_what_reads_deletes_and_starts_works(daemon: CheckpointDaemon) -> None:
    """Nothing of it needs space that a full disk has not; a directory that came in the place of another may wait."""
    workspace, replaced = daemon.new_workspace(), daemon.new_workspace()
    ws_id = daemon.init(replaced)
    for id in ("one", "two", "three", "four"):
        (workspace / "file").write_text(id)
        daemon.checkpoint(workspace, id)
    replaced.rename(daemon.area / "away")
    replaced.mkdir()
    (replaced / "big").write_bytes(os.urandom(MIB))
    before, other, name = describe(workspace), describe(replaced), str(workspace)
    with full(daemon.area.parent):
        refused_or(daemon, wire.InitOk, wire.Init(str(replaced)))
        assert describe(replaced) == other
        for request in (wire.List(name), wire.List(), wire.Status(), wire.Config(), wire.ReloadConfig()):
            assert not isinstance(daemon.ask(request), wire.Error)
        assert daemon.ask(wire.Diff(name, "one", "two")) == wire.DiffOk(
            (wire.DiffEntry("file", wire.ChangeType.Modified),)
        )
        health = daemon.expect(wire.HealthAdvisoryOk, wire.HealthAdvisory())
        assert health.fs_used_bytes > 0.9 * health.fs_total_bytes
        assert daemon.ask(wire.Delete(name, "one")) == wire.DeleteOk("one")
        assert daemon.ask(wire.Cleanup(name, 1)) == wire.CleanupOk(("two", "three"))
        daemon.restart()
        daemon.kill()
        daemon.start()
        assert (daemon.ids(workspace), describe(workspace)) == (["four"], before)
        daemon.expect(wire.DeleteOk, wire.Delete(name, "four"))
    assert daemon.init(replaced) == ws_id
    daemon.checkpoint(workspace, "five")


def refused_or(daemon: CheckpointDaemon, kind: type[object], request: wire.Request) -> bool:
    """Whether a request was refused for want of space; else it must have been done."""
    answer = daemon.ask(request)
    if isinstance(answer, wire.Error):
        assert answer.code is wire.ErrorCode.DiskSpaceInsufficient, answer
        return True
    assert isinstance(answer, kind)
    return False


def test_a_copy_that_does_not_fit_is_refused() -> None:
    with checkpoint_daemon("copy", size=24 * MIB) as daemon:
        workspace = daemon.new_workspace()
        daemon.checkpoint(workspace, "one")
        (workspace / "big").write_bytes(os.urandom(12 * MIB))
        before = describe(workspace)
        daemon.refuses("DiskSpaceInsufficient", "No space left", wire.Checkpoint(str(workspace), "two"))
        assert (daemon.ids(workspace), describe(workspace)) == (["one"], before)
        daemon.rollback(workspace, "one")
        daemon.checkpoint(workspace, "two")
