"""The archive (spec 1.2, 4.4): what is in it does not depend on the agent it came from."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend.memory import MemoryStore
from backend.sqlite import SqliteStore
from backend.store import Store
from ctxfs.inodes import Kind, Node, inode_of
from tests.unit.world import ALICE, Caller, World

BOB: Any = Caller(1002, 1002)

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda directory: SqliteStore.open_now(directory / "store"),
}
# Of a session that Alice made: space → modes of its directory and files, and its owner and group.
PLACES: dict[str, tuple[int, int, tuple[int, int]]] = {
    "home/1001": (0o500, 0o400, (1001, 1001)),
    "shared/team": (0o2550, 0o440, (1001, 3000)),
}


@pytest.mark.parametrize("form", STORES)
@pytest.mark.parametrize("place", PLACES)
def test_an_archived_session_outlives_its_agent(tmp_path: Path, form: str, place: str) -> None:
    directory_mode, file_mode, owner = PLACES[place]
    world = World(tmp_path, store=STORES[form](tmp_path))
    store = world.store
    store.add_space(place, ALICE.uid if place.startswith("home") else 0, 3000, 0o2770)
    agent = store.add_owner(place, "agent", "short", BOB.uid, 3000)
    session = store.create_session(agent.id, "one", ALICE.uid)
    store.create_session(agent.id, "two", ALICE.uid)
    store.set_current(agent.id, "two")
    archive = store.add_archive_directory(place, None, "short", BOB.uid)
    store.archive_session(session.id, archive.id)
    two = store.session(agent.id, "two")
    assert two is not None
    store.delete_session(two.id)
    store.remove_owner(agent.id)

    directory = inode_of(Node(Kind.ARCHIVE_DIRECTORY, archive.id))
    assert list(world.names(directory)) == ["one"]
    found = world.does(world.operations.lookup(directory, b"one", ALICE))
    assert (stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid)) == (directory_mode, owner)
    assert {"messages.jsonl", "state", "meta.json"} <= set(world.names(found.st_ino))
    state = world.does(world.operations.lookup(found.st_ino, b"state", ALICE))
    assert (stat.S_IMODE(state.st_mode), (state.st_uid, state.st_gid)) == (file_mode, owner)
    info = world.does(world.operations.open(state.st_ino, 0, ALICE))
    assert world.does(_read(world, info.fh)) == b"idle\n"
    world.close()
    store.close()


async def _read(world: World, fh: int) -> bytes:
    return await world.operations.read(fh, 0, 100)
