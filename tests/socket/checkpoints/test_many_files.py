"""A workspace of very many files (spec 6.5)."""

import os
from pathlib import Path

import pytest

from backend.checkpoints import wire
from tests import checkpointing
from tests.checkpointing import MIB, Kind, checkpoint_daemon

PER_DIRECTORY = 100


def plant_many(workspace: Path, count: int) -> None:
    for number in range(count // PER_DIRECTORY):
        directory = workspace / f"d{number % 10}/e{number}"
        directory.mkdir(parents=True)
        for name in range(PER_DIRECTORY):
            (directory / f"f{name}").write_text(f"{number} {name}\n")


def content(workspace: Path) -> dict[str, str]:
    files = (Path(at) / name for at, _, names in os.walk(workspace.resolve()) for name in names)
    return {str(file.relative_to(workspace.resolve())): file.read_text() for file in files}


@pytest.mark.limit(3600)
@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=pytest.mark.longer)])
@pytest.mark.parametrize("kind", ["copy", "btrfs"])
def test_many_files(kind: Kind, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "TIMEOUT_S", 1800.0)
    with checkpoint_daemon(kind, size=7000 * MIB) as daemon:
        workspace = daemon.new_workspace()
        plant_many(workspace, count)
        before, name = content(workspace), str(workspace)
        daemon.checkpoint(workspace, "one")
        (workspace / "d1/e1/f1").write_text("changed")
        daemon.checkpoint(workspace, "two")
        changed = wire.DiffEntry("d1/e1/f1", wire.ChangeType.Modified)
        assert daemon.ask(wire.Diff(name, "one", "two")) == wire.DiffOk((changed,))
        daemon.rollback(workspace, "one")
        assert content(workspace) == before
        assert daemon.ask(wire.Delete(name, "two")) == wire.DeleteOk("two")
        daemon.restart()
        daemon.expect(wire.RecoverOk, wire.Recover(name))
        assert content(workspace) == before
