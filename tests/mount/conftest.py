"""Fixtures of the mount's tests: Alice's home on a fresh mount, or a session of one's own on the module's mount."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.acting import new_session
from tests.mount.scenery import Home
from tests.mounting import RunningMount, running_mount


@pytest.fixture
def home(mount: RunningMount) -> Home:
    return Home(mount)


@pytest.fixture(scope="module")
def module_mount(fuse_device: None) -> Iterator[RunningMount]:
    """A running mount that the tests of a module share; it must end without a warning in its log."""
    with running_mount() as mounted:
        yield mounted


@pytest.fixture
def ctx(module_mount: RunningMount) -> Path:
    """The mountpoint of the module's mount; each test makes sessions of its own (``acting.new_session``)."""
    return module_mount.path


@pytest.fixture
def session(ctx: Path) -> Path:
    """A new, empty session of the caller's home."""
    return new_session(ctx)
