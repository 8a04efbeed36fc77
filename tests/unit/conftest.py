"""Fixtures of tests without a mount."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.jsonl import JsonlStore
from ctxfs.inodes import Kind, Node, inode_of
from ctxfs.loop import Loop
from tests.unit.jsonl_tree import made
from tests.unit.loop_device import Device
from tests.unit.passthrough_disks import Disk
from tests.unit.world import ALICE, World


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    found = Disk(tmp_path / "disk")
    yield found
    found.operations.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The directory of a jsonl store."""
    path = tmp_path / "store"
    path.mkdir(0o700)
    return path


@pytest.fixture
def store(root: Path) -> Iterator[JsonlStore]:
    """A store with one session, ``default``."""
    store = made(root)
    yield store
    store.close()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Alice's agent, which has no session yet."""
    world = World(tmp_path)
    agents = inode_of(Node(Kind.SPACE_AGENTS, ALICE.uid))
    world.does(world.operations.mkdir(agents, b"coder", 0o755, ALICE))
    yield world
    world.close()
