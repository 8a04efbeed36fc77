"""Requests and upkeep of the checkpoint daemon that come in each other's way (spec 6.3; notes 2.15)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from backend.checkpoints import wire
from backend.checkpoints.config import Configuration
from backend.checkpoints.locks import ReadWriteLock
from backend.checkpoints.service import Places, Service
from backend.checkpoints.snapshots.btrfs import BtrfsSnapshots
from backend.checkpoints.workspace import Workspace
from backend.checkpoints.workspaces import Workspaces
from tests.checkpointing import scratch
from tests.crash.checkpoint_scenes import Place, place_on
from tests.people import ROOT
from tests.trees import describe


@pytest.fixture
def engine() -> Iterator[Workspaces]:
    with scratch() as base:
        yield Place(base / "state", base, "copy").engine()


def service_of(engine: Workspaces) -> Service:
    return Service(engine, Places("socket", Path("/mnt"), Path("config.toml"), "info"), Configuration())


def registered(engine: Workspaces, base: Path, *names: str) -> list[Workspace]:
    """Workspaces, each with a snapshot ``one``."""
    found = []
    for name in names:
        (base / name).mkdir()
        (base / name / "file").write_text(name)
        found.append(engine.init(str(base / name), ROOT.uid))
        found[-1].checkpoint("one", None, None, False)
    return found


def made_anew(engine: Workspaces, workspace: Workspace) -> Workspace:
    """Recovered and registered again, with a snapshot of the same id."""
    engine.recover(workspace)
    new = engine.init(workspace.path, ROOT.uid)
    new.checkpoint("one", None, None, False)
    return new


@pytest.mark.parametrize("again", [False, True])
def test_a_cleanup_knows_the_workspaces_that_there_are_when_it_comes_to_them(
    engine: Workspaces, tmp_path: Path, again: bool
) -> None:
    """The second is recovered while the first is cleaned up; what has its id by then is another one."""
    first, second = registered(engine, tmp_path, "first", "second")
    seen: list[Workspace] = []
    new: list[Workspace] = []

    def victims(workspace: Workspace) -> list[str]:
        if not seen:
            new.extend([made_anew(engine, second)] if again else [])
            if not again:
                engine.recover(second)
        seen.append(workspace)
        return []

    trio.run(service_of(engine).clean_up, victims)
    assert seen == [first, *new]


def test_a_listing_of_all_leaves_out_what_is_recovered_meanwhile(engine: Workspaces, tmp_path: Path) -> None:
    first, second = registered(engine, tmp_path, "first", "second")
    entries = first.entries

    def recover_meanwhile() -> list[wire.SnapshotEntry]:
        engine.recover(second)
        return entries()

    first.entries = recover_meanwhile  # type: ignore[method-assign]
    answer = trio.run(service_of(engine).answer, wire.List(), ROOT.uid)
    assert isinstance(answer, wire.ListOk)
    assert {entry.workspace for entry in answer.snapshots} == {first.path}


def test_who_comes_while_a_directory_becomes_a_link_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name leads elsewhere already, and nobody has registered it yet; all get the one workspace."""
    with place_on("btrfs") as place:
        engine = place.engine()
        path = place.area / "busy"
        path.mkdir()
        (path / "file").write_text("first\n")
        before, service, ids = describe(path), service_of(engine), []
        real = BtrfsSnapshots._is_moved
        is_link, others_come = trio.Event(), trio.Event()

        def wait_for_others(self: BtrfsSnapshots, *arguments: Any) -> bool:
            trio.from_thread.run_sync(is_link.set)
            trio.from_thread.run(others_come.wait)
            return real(self, *arguments)

        async def init() -> None:
            ids.append(await service.answer(wire.Init(str(path)), ROOT.uid))

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(init)
                await is_link.wait()
                nursery.start_soon(init)
                await trio.testing.wait_all_tasks_blocked(0.05)
                others_come.set()

        monkeypatch.setattr(BtrfsSnapshots, "_is_moved", wait_for_others)
        trio.run(main)
        assert ids == [wire.InitOk(engine.find(str(path), ROOT.uid).ws_id)] * 2
        assert (describe(path), path.is_symlink()) == (before, True)


def test_a_reader_is_no_writer() -> None:
    """Not even while it comes in; a writer is one while it waits."""

    async def main() -> None:
        lock, left, waits = ReadWriteLock(), trio.Event(), trio.Event()

        async def read() -> None:
            async with lock.reading():
                await left.wait()

        async def write() -> None:
            waits.set()
            async with lock.writing():
                assert lock.is_writing

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(read)
                await trio.lowlevel.checkpoint()
                assert not lock.is_writing
            nursery.start_soon(write)
            await waits.wait()
            assert lock.is_writing
            left.set()
        assert not lock.is_writing

    trio.run(main)
