"""Fixtures of tests without a mount."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.jsonl import JsonlStore
from ctxfs.loop import Loop
from tests.unit.jsonl_tree import made
from tests.unit.loop_device import Device
from tests.unit.passthrough_disks import Disk


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
