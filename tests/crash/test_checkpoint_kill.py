"""kill -9 of the checkpoint daemon at any time: before or after, and what was answered is done (spec 6.6)."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.checkpoints import wire
from tests.checkpointing import Asker, CheckpointDaemon, checkpoint_daemon
from tests.trees import describe, plant

OPERATIONS = ("init", "checkpoint", "rollback", "delete", "recover")


@pytest.fixture(scope="module", params=["copy", "btrfs"])
def daemon(request: pytest.FixtureRequest) -> Iterator[CheckpointDaemon]:
    with checkpoint_daemon(request.param) as running:
        yield running


def killed_in(daemon: CheckpointDaemon, request: wire.Request, after_s: float) -> wire.Response | None:
    """The answer, if it came before the daemon was killed; the daemon runs again afterwards."""
    asker = Asker(daemon.socket, request)
    asker.start()
    time.sleep(after_s)
    daemon.kill()
    asker.join()
    daemon.start()
    return asker.answer


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=pytest.mark.longer)])
@pytest.mark.limit(1800)
def test_kill(daemon: CheckpointDaemon, rounds: int) -> None:
    chance = random.Random(rounds)
    for number in range(rounds):
        operation = OPERATIONS[number % len(OPERATIONS)]
        one_round(daemon, operation, chance.random() * 0.1)


def one_round(daemon: CheckpointDaemon, operation: str, after_s: float) -> None:
    workspace = daemon.new_workspace()
    plant(workspace)
    if operation == "init":
        before = describe(workspace)
        killed_in(daemon, wire.Init(str(workspace)), after_s)
        assert describe(workspace) == before
        daemon.checkpoint(workspace, "one")
        return
    daemon.checkpoint(workspace, "one")
    first = describe(workspace)
    (workspace / "plain.txt").write_text("changed")
    now = describe(workspace)
    name = str(workspace)
    if operation == "checkpoint":
        answer = killed_in(daemon, wire.Checkpoint(name, "two", "why"), after_s)
        ids = daemon.ids(workspace)
        assert ids in (["one"], ["one", "two"]) and describe(workspace) == now
        assert answer is None or ids == ["one", "two"]
    elif operation == "rollback":
        answer = killed_in(daemon, wire.Rollback(name, "one"), after_s)
        found = describe(workspace)
        assert found in (first, now)
        assert answer is None or found == first
    elif operation == "delete":
        answer = killed_in(daemon, wire.Delete(name, "one"), after_s)
        ids = daemon.ids(workspace)
        assert describe(workspace) == now
        assert ids == [] or (ids == ["one"] and answer is None)
    else:
        answer = killed_in(daemon, wire.Recover(name), after_s)
        listed = daemon.ask(wire.List(name))
        assert describe(workspace) == now
        assert isinstance(listed, wire.Error) or (answer is None and daemon.ids(workspace) == ["one"])
        daemon.checkpoint(workspace, "two")
    assert left_over(workspace) == []


def left_over(workspace: Path) -> list[str]:
    return [name for name in os.listdir(workspace.parent) if name.startswith(".")]
