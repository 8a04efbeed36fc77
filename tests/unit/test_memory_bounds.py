"""What the daemon remembers is bounded, whatever is asked of it (design, Speed: resident memory)."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyfuse3 import FUSEError

from ctxfs.files.providers import EMPTY_LIMIT, TOTAL_LIMIT, Providers
from ctxfs.inodes import Kind, Node, inode_of
from tests.unit.world import ALICE, Caller, World

BOB: Any = Caller(1002, 1002)
HOME = inode_of(Node(Kind.HOME, ALICE.uid))
MODELS = inode_of(Node(Kind.SPACE_MODELS, ALICE.uid))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Alice's agent with a session, ``one``."""
    world = World(tmp_path)
    agents = inode_of(Node(Kind.SPACE_AGENTS, ALICE.uid))
    world.does(world.operations.mkdir(agents, b"coder", 0o755, ALICE))
    world.does(world.operations.mkdir(of_owner(world, Kind.SESSIONS), b"one", 0o755, ALICE))
    world.does(world.operations.mkdir(MODELS, b"big", 0o755, ALICE))
    yield world
    world.close()


def of_owner(world: World, kind: Kind) -> int:
    """The inode of a directory of Alice's agent."""
    owner = world.store.owner(f"home/{ALICE.uid}", "agent", "coder")
    assert owner is not None
    return inode_of(Node(kind, owner.id))


# What a setattr that gives a file to another group changes.
GROUP: Any = SimpleNamespace(
    update_gid=True, update_uid=False, update_mode=False, update_size=False, update_mtime=False, update_atime=False
)
WRITE = os.O_WRONLY | os.O_CREAT

# Requests after which the kernel knows no new name, each with a name of its own: what they do, what they answer.
FORGOTTEN: dict[str, tuple[Callable[[World, bytes], Any], int]] = {
    "look-up of a key": (lambda w, n: w.operations.lookup(of_owner(w, Kind.BY_HASH), n, ALICE), errno.ENOENT),
    "look-up of a provider": (lambda w, n: w.operations.lookup(MODELS, n, ALICE), errno.ENOENT),
    "by-cwd is nobody's to make": (
        lambda w, n: w.operations.create(of_owner(w, Kind.BY_CWD), n, 0o600, WRITE, ALICE),
        errno.EACCES,
    ),
    "another's key": (
        lambda w, n: w.operations.create(of_owner(w, Kind.BY_HASH), n, 0o600, WRITE, BOB),
        errno.EACCES,
    ),
    "unlink": (lambda w, n: w.operations.unlink(of_owner(w, Kind.BY_HASH), n, ALICE), errno.ENOENT),
    "rmdir": (lambda w, n: w.operations.rmdir(MODELS, n, ALICE), errno.ENOENT),
    "rename": (
        lambda w, n: w.operations.rename(of_owner(w, Kind.BY_HASH), n, of_owner(w, Kind.BY_HASH), b"y" + n, 0, ALICE),
        errno.ENOENT,
    ),
    "a save that is refused": (lambda w, n: save(w, n, b"nobody\n"), errno.ENOENT),
    "a save of rubbish": (lambda w, n: save(w, n, b"\n"), errno.EINVAL),
}


async def save(world: World, name: bytes, content: bytes) -> None:
    directory = of_owner(world, Kind.BY_HASH)
    temporary = b"." + name
    info, _ = await world.operations.create(directory, temporary, 0o600, WRITE, ALICE)
    await world.operations.write(info.fh, 0, content)
    await world.operations.release(info.fh)
    await world.operations.rename(directory, temporary, directory, name, 0, ALICE)


@pytest.mark.parametrize("what", FORGOTTEN)
def test_a_name_that_the_kernel_is_not_told_of_takes_no_memory(world: World, what: str) -> None:
    call, answer = FORGOTTEN[what]
    interned = world.core.subjects.interned
    before = len(interned)
    for number in range(20):
        assert world.outcome(call(world, b"x%d" % number)) == answer
    assert len(interned) <= before + 1


def test_listings_that_are_given_up_take_no_memory(world: World) -> None:
    owner = world.store.owner(f"home/{ALICE.uid}", "agent", "coder")
    assert owner is not None
    for number in range(50):
        world.store.set_mapping(owner.id, "by-hash", f"h{number}", "one")
        world.does(world.operations.mkdir(MODELS, b"p%d" % number, 0o755, ALICE))
    interned = world.core.subjects.interned
    before = len(interned)
    for directory in (of_owner(world, Kind.BY_HASH), MODELS):
        assert len(world.names(directory)) >= 50
    assert len(interned) <= before + 1


def test_a_shared_space_that_is_given_away_gives_no_numbers_to_what_the_kernel_does_not_know(world: World) -> None:
    root: Any = Caller(0, 0)
    shared = inode_of(Node(Kind.SHARED, 1))
    made = world.does(world.operations.mkdir(shared, b"team", 0o755, root))
    owner = world.store.add_owner("shared/team", "agent", "helper", 0, 0)
    world.store.create_session(owner.id, "one", 0)
    for number in range(50):
        world.store.set_mapping(owner.id, "by-hash", f"h{number}", "one")
    by_hash = inode_of(Node(Kind.BY_HASH, owner.id))
    known = world.does(world.operations.lookup(by_hash, b"h7", root)).st_ino
    before = len(world.core.subjects.interned)
    made.st_gid = 6
    world.told.clear()
    world.does(world.operations.setattr(made.st_ino, made, GROUP, None, root))
    assert len(world.core.subjects.interned) == before
    assert {known, by_hash} <= world.told
    assert world.does(world.operations.getattr(known, root)).st_gid == 6


def test_providers_without_models_are_limited_in_each_place_and_in_all() -> None:
    providers = Providers()
    for number in range(EMPTY_LIMIT):
        providers.make(1, f"p{number}", [])
    with pytest.raises(FUSEError) as refused:
        providers.make(1, "more", [])
    assert refused.value.errno == errno.ENOSPC
    providers.make(1, "more", [(1, "p0/m")])
    providers.remove(1, "p1", [])
    providers.remove(1, "p2", [])
    providers.make(1, "p1", [])
    for number in range(TOTAL_LIMIT - EMPTY_LIMIT):
        providers.make(2 + number, "p", [])
    with pytest.raises(FUSEError) as refused:
        providers.make(1, "p2", [(1, "p0/m")])
    assert refused.value.errno == errno.ENOSPC
    providers.remove(2, "p", [])
    providers.make(1, "p2", [(1, "p0/m")])


def test_a_provider_is_the_first_mkdir_in_a_home(world: World) -> None:
    """Spec 1.8: that stores the home."""
    models = inode_of(Node(Kind.SPACE_MODELS, BOB.uid))
    assert world.store.space(f"home/{BOB.uid}") is None
    world.does(world.operations.mkdir(models, b"big", 0o755, BOB))
    assert world.store.space(f"home/{BOB.uid}") is not None


def test_times_of_directories_that_are_gone_are_forgotten(world: World) -> None:
    archive = inode_of(Node(Kind.ARCHIVE, ALICE.uid))
    agents = inode_of(Node(Kind.SPACE_AGENTS, ALICE.uid))

    def round_trip(number: int) -> None:
        for parent in (archive, MODELS, agents):
            made = world.does(world.operations.mkdir(parent, b"d%d" % number, 0o755, ALICE)).st_ino
            for below in {archive: b"a", MODELS: b"m.d", agents: b""}[parent].split():
                world.does(world.operations.mkdir(made, below, 0o755, ALICE))
                world.does(world.operations.rmdir(made, below, ALICE))
            world.does(world.operations.rmdir(parent, b"d%d" % number, ALICE))
            world.operations.forget([(made, 1)])

    round_trip(0)
    before = len(world.core.subjects.times)
    for number in range(1, 20):
        round_trip(number)
    assert len(world.core.subjects.times) == before
