"""A call to the disk that fails anywhere in an operation on a workspace: it is done or not, and no later one is harmed.

The n-th call fails with EIO, once or until the operation has answered, and before or after its effect. At a few of them
by default, at each with ``-m longer``.
"""

import itertools
from collections.abc import Callable, Iterator

import pytest

from backend.checkpoints import watch
from backend.checkpoints.errors import CheckpointError
from backend.checkpoints.workspaces import Workspaces
from tests.crash.checkpoint_scenes import (
    EACH_OPERATION,
    Act,
    Check,
    Place,
    Scene,
    act_adopt,
    act_checkpoint,
    act_delete,
    act_init,
    act_recover,
    act_rollback,
    finish,
    prepared,
)
from tests.crash.failing_calls import FailingCalls, Fault
from tests.trees import describe

SCENES = itertools.count()

FAULTS = [Fault(late, stays) for late in (False, True) for stays in (False, True)]

STRIDE = pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.longer)])
EACH_FAULT = pytest.mark.parametrize(
    "fault", FAULTS, ids=[f"{'late' if late else 'early'}-{'stays' if stays else 'once'}" for late, stays in FAULTS]
)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> FailingCalls:
    monkeypatch.setattr(watch, "PAUSE_S", 0.001)
    return FailingCalls(monkeypatch)


def broken(place: Place, act: Act, number: int, fault: Fault, calls: FailingCalls) -> tuple[Scene, Workspaces]:
    """An operation of which a call failed; if it said that it was done, it was."""
    scene = prepared(place, act, f"{act.__name__}-{next(SCENES)}")
    engine = place.engine()
    for workspace in engine.all():
        workspace.watch.arm()
    try:
        with calls.failing(number, fault):
            act(engine, str(scene.path))
    except (CheckpointError, OSError):
        return scene, engine
    assert is_done(act, scene, engine)
    return scene, engine


def is_done(act: Act, scene: Scene, engine: Workspaces) -> bool:
    if act is act_recover:
        return not engine.all() and not scene.path.is_symlink()
    workspace = engine.find(str(scene.path), 0)
    snapshots = workspace.catalogue.snapshots
    if act is act_adopt:
        workspace.require_current()
    if act is act_checkpoint:
        return "three" in snapshots and not snapshots["three"].missing
    if act is act_delete:
        return "one" not in snapshots
    return act is not act_rollback or describe(scene.path) == scene.trees["one"]


def stop(engine: Workspaces) -> None:
    for workspace in engine.all():
        workspace.watch.close()


def numbers(calls: FailingCalls, stride: int) -> Iterator[int]:
    """Numbers of calls, until the operation made no more of them."""
    number = 1
    while number == 1 or calls.reached:
        yield number
        number += stride
    assert number > 8, "the operation makes more calls than that"


def rests(_act: Act, _scene: Scene, _engine: Workspaces) -> None:
    """Nothing is asked of it before the next start."""


def goes_on(act: Act, scene: Scene, engine: Workspaces) -> None:
    if act is act_init:
        engine.init(str(scene.path), 0)
    if act is act_recover:
        for workspace in engine.all():
            engine.recover(workspace)
    elif act is not act_adopt:
        workspace = engine.find(str(scene.path), 0)
        workspace.checkpoint("four", None, None, False)
        workspace.delete("four", force=True)


@pytest.mark.limit(1200)
@STRIDE
@EACH_FAULT
@EACH_OPERATION
@pytest.mark.parametrize("afterwards", [rests, goes_on])
def test_a_start_afterwards_finds_it_done_or_not(
    place: Place,
    calls: FailingCalls,
    afterwards: Callable[[Act, Scene, Workspaces], None],
    act: Act,
    check: Check,
    fault: Fault,
    stride: int,
) -> None:
    """After other operations, too: nothing that they overwrote in the journal was still needed."""
    for number in numbers(calls, stride):
        scene, engine = broken(place, act, number, fault, calls)
        afterwards(act, scene, engine)
        stop(engine)
        finish(scene, check)


@pytest.mark.limit(1200)
@STRIDE
@EACH_FAULT
@EACH_OPERATION
def test_a_start_that_fails(
    place: Place, calls: FailingCalls, act: Act, check: Check, fault: Fault, stride: int
) -> None:
    """After an operation that could not undo what it began."""
    begun = 9
    for number in numbers(calls, stride):
        scene, engine = broken(place, act, begun + number, Fault(late=False, stays=True), calls)
        stop(engine)
        try:
            with calls.failing(number, fault):
                stop(place.engine())
        except OSError:
            pass
        finish(scene, check)
