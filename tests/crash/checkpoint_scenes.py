"""A workspace on the disk of a back end, what is done to it, and what must hold whatever became of that (spec 6.6)."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from backend.checkpoints.backends import Backends
from backend.checkpoints.errors import InvalidPath
from backend.checkpoints.snapshots.data_roots import DATA_ROOT
from backend.checkpoints.state import StateDirectory
from backend.checkpoints.workspaces import Workspaces
from tests.checkpointing import Kind, disk, scratch
from tests.trees import describe


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

    def disks(self) -> list[Path]:
        """Directories that may be elsewhere than the state: what of them is not mounted at a start."""
        return [each for each in (self.area, self.area.parent / DATA_ROOT) if each.exists()]


@contextmanager
def place_on(kind: Kind) -> Iterator[Place]:
    """A place on a disk of its own."""
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
        self.aside = place.area / f"{name} aside"
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

    def replace(self) -> None:
        """Another directory stands at the path; what was there is beside it."""
        self.path.rename(self.aside)
        self.path.mkdir()
        (self.path / "other").write_text("other\n")
        self.trees["other"] = describe(self.path)

    def remove(self) -> None:
        engine = self.place.engine()
        for workspace in engine.all():
            engine.recover(workspace)
        shutil.rmtree(self.path)
        if self.aside.is_symlink():
            self.aside.unlink()
        elif self.aside.exists():
            shutil.rmtree(self.aside)


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


def act_adopt(engine: Workspaces, path: str) -> None:
    """Of a directory that took the place of the workspace's."""
    engine.init(path, 0)


Act = Callable[[Workspaces, str], None]


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


def check_adopt(scene: Scene, engine: Workspaces) -> None:
    """Where it was not adopted, the workspace is whole once it is back in its place."""
    workspace = engine.find(str(scene.path), 0)
    assert describe(scene.path) == scene.trees["other"]
    try:
        workspace.require_current()
    except InvalidPath:
        shutil.rmtree(scene.path)
        scene.aside.rename(scene.path)
        assert describe(scene.path) == scene.trees["now"]
    restorable(scene, engine, {"one", "two"})


Check = Callable[[Scene, Workspaces], None]

CASES: list[tuple[Act, Check]] = [
    (act_init, check_init),
    (act_checkpoint, check_checkpoint),
    (act_rollback, check_rollback),
    (act_delete, check_delete),
    (act_recover, check_recover),
    (act_adopt, check_adopt),
]


EACH_OPERATION = pytest.mark.parametrize(("act", "check"), CASES, ids=[act.__name__ for act, _ in CASES])


def prepared(place: Place, act: Act, name: str) -> Scene:
    scene = Scene(place, name)
    scene.trees["now"] = describe(scene.path)
    if act is not act_init:
        scene.register()
    if act is act_adopt:
        scene.replace()
    return scene


def finish(scene: Scene, check: Check) -> None:
    """Claims what a start makes of what is there, and removes the scene."""
    engine = scene.place.engine()
    nothing_is_left_over(scene.place, engine)
    check(scene, engine)
    scene.remove()
