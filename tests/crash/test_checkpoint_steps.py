"""Death between any two steps of an operation on a workspace: what is found is before or after it (spec 6.6).

The operation runs in a forked child that ends itself at the n-th file that it opens, renames, makes or removes: at
every fourth by default, at each with ``-m longer``. What it leaves is then opened as a start of the daemon does, and
that dies in the same way.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from backend.checkpoints.backends import Backends
from backend.checkpoints.journal import Deleting, Intent, Restoring, Taking
from backend.checkpoints.state import StateDirectory
from backend.checkpoints.workspaces import Workspaces
from tests.checkpointing import Kind, disk, scratch
from tests.trees import describe

DIED = 9
_STEPS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chown", "os.chmod")


class Place(NamedTuple):
    """A state directory and one for workspaces, on the disk of a back end."""

    state: Path
    area: Path
    wanted: str

    def engine(self) -> Workspaces:
        """As a start of the daemon finds things."""
        directory = StateDirectory(self.state)
        directory.prepare()
        engine = Workspaces(directory, Backends(directory, self.wanted, self.area))
        engine.load()
        return engine


@pytest.fixture(scope="module", params=["copy", "btrfs"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    kind: Kind = request.param
    with scratch() as base, disk(kind, base) as mounted:
        (mounted / "area").mkdir()
        yield Place(
            base / "state" if kind == "btrfs" else mounted / "state",
            mounted / "area",
            "auto" if kind == "btrfs" else "copy",
        )


class Scene:
    """A workspace with the snapshots ``one`` and ``two``, changed since; what it was then, and what it is now."""

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        self.path = place.area / name
        self.path.mkdir()
        (self.path / "file").write_text("first\n")
        (self.path / "below").mkdir()
        (self.path / "below/other").write_text("other\n")
        self.trees: dict[str, object] = {}

    def register(self) -> None:
        engine = self.place.engine()
        workspace = engine.init(str(self.path), 0)
        for id in ("one", "two"):
            self.trees[id] = describe(self.path)
            workspace.checkpoint(id, id, None, False)
            (self.path / f"after {id}").write_text(id)
        self.trees["now"] = describe(self.path)

    def remove(self) -> None:
        engine = self.place.engine()
        for workspace in engine.all():
            engine.recover(workspace)
        shutil.rmtree(self.path)


def act_init(engine: Workspaces, path: str) -> None:
    engine.init(path, 0)


def act_checkpoint(engine: Workspaces, path: str) -> None:
    engine.find(path, 0).checkpoint("three", "why", [1], True)


def act_rollback(engine: Workspaces, path: str) -> None:
    engine.find(path, 0).rollback("one")


def act_delete(engine: Workspaces, path: str) -> None:
    engine.find(path, 0).delete("one", force=False)


def act_recover(engine: Workspaces, path: str) -> None:
    engine.recover(engine.find(path, 0))


Act = Callable[[Workspaces, str], None]


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


def nothing_is_left_over(place: Place, engine: Workspaces) -> None:
    known = {workspace.ws_id for workspace in engine.all()}
    assert [name for name in os.listdir(place.area) if name.startswith(".")] == []
    assert set(os.listdir(place.state / "indexes")) == known
    for workspace in engine.all():
        assert workspace.snapshots.ids() == set(workspace.catalogue.snapshots)
        assert workspace.journal.read() is None
        bucket = workspace.snapshots.disk()
        names = [name for path in (bucket, bucket / workspace.ws_id) if path.is_dir() for name in os.listdir(path)]
        assert [name for name in names if name.startswith(".") or name.endswith(".rollback-tmp")] == []


def check_init(scene: Scene, engine: Workspaces) -> None:
    assert scene.trees["now"] == describe(scene.path)
    workspace = engine.init(str(scene.path), 0)
    workspace.checkpoint("one", None, None, False)
    workspace.rollback("one")
    assert scene.trees["now"] == describe(scene.path)


def restorable(scene: Scene, engine: Workspaces, ids: set[str]) -> None:
    """Every snapshot brings back what it was taken of."""
    workspace = engine.find(str(scene.path), 0)
    for id in sorted(ids):
        workspace.rollback(id)
        assert describe(scene.path) == scene.trees[id]


def check_checkpoint(scene: Scene, engine: Workspaces) -> None:
    snapshots = engine.find(str(scene.path), 0).catalogue.snapshots
    assert describe(scene.path) == scene.trees["now"]
    assert set(snapshots) in ({"one", "two"}, {"one", "two", "three"})
    if "three" in snapshots:
        record = snapshots["three"]
        assert (record.message, record.metadata, record.pinned, record.missing) == ("why", [1], True, False)
        scene.trees["three"] = scene.trees["now"]
    restorable(scene, engine, set(snapshots))


def check_rollback(scene: Scene, engine: Workspaces) -> None:
    assert describe(scene.path) in (scene.trees["now"], scene.trees["one"])
    assert set(engine.find(str(scene.path), 0).catalogue.snapshots) == {"one", "two"}
    restorable(scene, engine, {"one", "two"})


def check_delete(scene: Scene, engine: Workspaces) -> None:
    snapshots = engine.find(str(scene.path), 0).catalogue.snapshots
    assert set(snapshots) in ({"one", "two"}, {"two"})
    assert [record.message for record in snapshots.values()] == list(snapshots)
    assert describe(scene.path) == scene.trees["now"]
    restorable(scene, engine, set(snapshots))


def check_recover(scene: Scene, engine: Workspaces) -> None:
    assert describe(scene.path) == scene.trees["now"]
    if engine.all():
        restorable(scene, engine, {"one", "two"})
    else:
        assert scene.path.is_dir() and not scene.path.is_symlink()
        engine.init(str(scene.path), 0)


Check = Callable[[Scene, Workspaces], None]

CASES: list[tuple[Act, Check]] = [
    (act_init, check_init),
    (act_checkpoint, check_checkpoint),
    (act_rollback, check_rollback),
    (act_delete, check_delete),
    (act_recover, check_recover),
]


EACH_OPERATION = pytest.mark.parametrize(("act", "check"), CASES, ids=[act.__name__ for act, _ in CASES])


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


def prepared(place: Place, act: Act, name: str) -> Scene:
    scene = Scene(place, name)
    scene.trees["now"] = describe(scene.path)
    if act is not act_init:
        scene.register()
    return scene


def finish(scene: Scene, check: Check) -> None:
    """Claims what a start makes of what is there, and removes the scene."""
    engine = scene.place.engine()
    nothing_is_left_over(scene.place, engine)
    check(scene, engine)
    scene.remove()


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
