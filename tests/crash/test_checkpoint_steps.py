"""Death between any two steps of an operation on a workspace: what is found is before or after it (spec 6.6).

The operation runs in a forked child that ends itself at the n-th file that it opens, renames, makes or removes: at
every fourth by default, at each with ``-m longer``. What it leaves is then opened as a start of the daemon does, and
that dies in the same way.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.checkpoints.journal import Deleting, Intent, Restoring, Taking
from tests.crash.checkpoint_scenes import (
    EACH_OPERATION,
    Act,
    Check,
    Place,
    act_recover,
    finish,
    nothing_is_left_over,
    prepared,
)
from tests.trees import describe

DIED = 9
_STEPS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chown", "os.chmod")


def dies_at(step: int, act: Act, place: Place, path: Path) -> bool:
    """Runs an operation in a child that dies before that step; whether it died."""

    def run() -> None:
        engine = place.engine()
        for workspace in engine.all():
            workspace.watch.arm()
        _die_at(step)
        act(engine, str(path))

    return child_dies(run)


def start_dies_at(step: int, place: Place) -> bool:
    """The same of a start."""

    def run() -> None:
        _die_at(step)
        place.engine()

    return child_dies(run)


def child_dies(run: Callable[[], None]) -> bool:
    """Whether a child that runs this dies; an error is none of the deaths that are looked for."""
    child = os.fork()
    if child == 0:
        try:
            run()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, DIED), "it failed"
    return code == DIED


def _die_at(step: int) -> None:
    left = step

    def count(event: str, _arguments: object) -> None:
        nonlocal left
        if event in _STEPS:
            left -= 1
            if left == 0:
                os._exit(DIED)

    sys.addaudithook(count)


@pytest.mark.limit(600)
@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.longer)])
@EACH_OPERATION
def test_every_step(place: Place, act: Act, check: Check, stride: int) -> None:
    step, died = 1, True
    while died:
        scene = prepared(place, act, f"{act.__name__}-{step}")
        died = dies_at(step, act, place, scene.path)
        finish(scene, check)
        step += stride
    assert step > 8, "the operation has more steps than that"


@pytest.mark.limit(1200)
@pytest.mark.parametrize(
    ("stride", "start_stride"), [(12, 5), pytest.param(3, 1, marks=pytest.mark.longer)], ids=["some", "each"]
)
@EACH_OPERATION
def test_every_step_of_the_starts_afterwards(
    place: Place, act: Act, check: Check, stride: int, start_stride: int
) -> None:
    """Starts that die on their part, each later than the one before, leave what the last one finishes."""
    step, died, most = 1, True, 0
    while died:
        scene = prepared(place, act, f"start-{act.__name__}-{step}")
        died = dies_at(step, act, place, scene.path)
        start_step = 1
        while start_dies_at(start_step, place):
            start_step += start_stride
        most = max(most, start_step)
        finish(scene, check)
        step += stride
    assert most > 8, "a start has more steps than that"


@pytest.mark.limit(600)
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.longer)])
@EACH_OPERATION
def test_a_start_while_a_disk_is_not_mounted(place: Place, act: Act, check: Check, stride: int) -> None:
    """It decides nothing of what it cannot see: the next start finds everything."""
    step, died = 1, True
    while died:
        scene = prepared(place, act, f"disk-{act.__name__}-{step}")
        died = dies_at(step, act, place, scene.path)
        for disk in place.disks():
            elsewhere = disk.rename(disk.with_name("elsewhere"))
            place.engine()
            elsewhere.rename(disk)
        finish(scene, check)
        step += stride
    assert step > 8, "the operation has more steps than that"


@pytest.mark.parametrize("announced", ["checkpoint", "rollback", "delete"])
def test_only_an_announced_recover_is_taken_for_one(place: Place, announced: str) -> None:
    """The journal of something else that took place may still be there: it could not be ended, or not all went."""
    scene = prepared(place, act_recover, f"announced-{announced}")
    engine = place.engine()
    workspace = engine.find(str(scene.path), 0)
    took_place: dict[str, Intent] = {
        "checkpoint": Taking("one", workspace.catalogue.snapshots["one"]),
        "rollback": Restoring(workspace.snapshots.live_identity(), None),
        "delete": Deleting("three"),
    }
    workspace.journal.begin(took_place[announced])
    engine.recover(workspace)
    assert (describe(scene.path), scene.path.is_symlink()) == (scene.trees["now"], False)
    nothing_is_left_over(place, engine)
    shutil.rmtree(scene.path)
