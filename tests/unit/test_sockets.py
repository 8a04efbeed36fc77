"""Which sockets the tree shows: those that were announced and bound, by the mounter (spec 3.1)."""

import errno
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxfs.files.sockets import Address
from ctxfs.inodes import Kind, Node, inode_of
from tests.unit.world import Caller, World

AGENTS = inode_of(Node(Kind.AGENTS, 1))
SOCKET = stat.S_IFSOCK | 0o777
MOUNTER: Any = Caller(0, 0)
MALLORY: Any = Caller(1001, 1001)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def bind(world: World, parent: int, name: bytes, caller: Any = MOUNTER, mode: int = SOCKET) -> Any:
    return world.operations.mknod(parent, name, mode, 0, caller)


def expect(world: World, name: str, provider: str | None = None, uid: int | None = None) -> Address:
    address = Address(name, provider)
    world.core.subjects.sockets.expect(address, uid)
    return address


def test_only_what_is_expected_can_be_bound_and_only_once(world: World) -> None:
    assert world.outcome(bind(world, AGENTS, b"a.sock")) == errno.EPERM
    expect(world, "a")
    assert world.outcome(bind(world, AGENTS, b"b.sock")) == errno.EPERM
    assert world.outcome(bind(world, AGENTS, b"a.sock", MALLORY)) == errno.EPERM
    assert world.outcome(bind(world, AGENTS, b"a.sock", mode=stat.S_IFIFO | 0o600)) == errno.EPERM
    assert world.names(AGENTS) == {}
    assert world.outcome(bind(world, AGENTS, b"a.sock")) == 0
    assert world.outcome(bind(world, AGENTS, b"a.sock")) == errno.EPERM
    assert list(world.names(AGENTS)) == ["a.sock"]


def test_one_that_failed_to_bind_is_not_expected_any_more(world: World) -> None:
    world.core.subjects.sockets.unexpect(expect(world, "a"))
    assert world.outcome(bind(world, AGENTS, b"a.sock")) == errno.EPERM


@pytest.mark.parametrize(("uid", "mode"), [(None, 0o666), (1001, 0o600)])
def test_its_mode_says_whose_it_is(world: World, uid: int | None, mode: int) -> None:
    expect(world, "a", uid=uid)
    made = world.does(bind(world, AGENTS, b"a.sock"))
    assert (made.st_mode, made.st_uid, made.st_size) == (stat.S_IFSOCK | mode, uid or 0, 0)
    found = world.does(world.operations.lookup(AGENTS, b"a.sock", MALLORY))
    assert (found.st_ino, found.st_mode) == (made.st_ino, made.st_mode)


def test_a_models_is_in_its_providers_directory(world: World) -> None:
    models = inode_of(Node(Kind.MODELS, 1))
    world.does(world.operations.mkdir(models, b"acme", 0o755, MOUNTER))
    provider = world.does(world.operations.lookup(models, b"acme", MOUNTER)).st_ino
    address = expect(world, "m1", "acme")
    assert world.outcome(bind(world, AGENTS, b"m1.sock")) == errno.EPERM
    world.does(bind(world, provider, b"m1.sock"))
    assert (list(world.names(provider)), world.names(AGENTS)) == (["m1.sock"], {})
    world.core.subjects.sockets.release(address)
    world.does(world.operations.unlink(provider, b"m1.sock", MOUNTER))
    assert world.names(provider) == {}


def test_only_what_is_released_can_be_removed_and_its_number_never_comes_back(world: World) -> None:
    address = expect(world, "a")
    first = world.does(bind(world, AGENTS, b"a.sock")).st_ino
    assert world.outcome(world.operations.unlink(AGENTS, b"a.sock", MOUNTER)) == errno.EPERM
    assert world.core.subjects.sockets.release(address)
    assert world.outcome(world.operations.unlink(AGENTS, b"a.sock", MALLORY)) == errno.EPERM
    assert world.outcome(world.operations.unlink(AGENTS, b"a.sock", MOUNTER)) == 0
    assert not world.core.subjects.sockets.release(address)
    assert world.outcome(world.operations.unlink(AGENTS, b"a.sock", MOUNTER)) == errno.ENOENT
    assert world.names(AGENTS) == {}
    assert world.outcome(world.operations.getattr(first, MOUNTER)) == errno.ESTALE
    expect(world, "a")
    assert world.outcome(world.operations.unlink(AGENTS, b"a.sock", MOUNTER)) == errno.ENOENT
    assert world.does(bind(world, AGENTS, b"a.sock")).st_ino != first
