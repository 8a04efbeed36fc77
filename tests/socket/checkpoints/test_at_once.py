"""Requests that come at once (spec 6)."""

import threading
from pathlib import Path

import pytest

from backend.checkpoints import wire
from tests.checkpointing import CheckpointDaemon
from tests.socket.checkpoints.conftest import EACH_WAY

pytestmark = EACH_WAY


def at_once(daemon: CheckpointDaemon, requests: list[wire.Request]) -> list[wire.Response]:
    answers: list[wire.Response] = []
    threads = [threading.Thread(target=lambda each=each: answers.append(daemon.ask(each))) for each in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@pytest.mark.parametrize("is_known", [True, False])
def test_eight_checkpoints_at_once(daemon: CheckpointDaemon, workspace: Path, is_known: bool) -> None:
    if is_known:
        daemon.init(workspace)
    requests: list[wire.Request] = [wire.Checkpoint(str(workspace), f"s{number}") for number in range(8)]
    answers = at_once(daemon, requests)
    assert {type(answer) for answer in answers} == {wire.CheckpointOk}, answers
    assert sorted(daemon.ids(workspace)) == [f"s{number}" for number in range(8)]


@pytest.mark.parametrize("is_known", [True, False])
def test_four_checkpoints_of_one_id_at_once(daemon: CheckpointDaemon, workspace: Path, is_known: bool) -> None:
    if is_known:
        daemon.init(workspace)
    answers = at_once(daemon, [wire.Checkpoint(str(workspace), "one")] * 4)
    codes = [answer.code.name for answer in answers if isinstance(answer, wire.Error)]
    assert codes == ["SnapshotAlreadyExists"] * 3
    assert daemon.ids(workspace) == ["one"]


def test_one_directory_is_registered_once(daemon: CheckpointDaemon, workspace: Path) -> None:
    answers = at_once(daemon, [wire.Init(str(workspace))] * 8)
    assert len({answer.ws_id for answer in answers if isinstance(answer, wire.InitOk)}) == 1 and len(answers) == 8
