"""A mount that the tests of a module share, and its ``agent/ctx.sock``."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import RunningMount, running_mount
from tests.socket.workshop import Workshop


@pytest.fixture(scope="module")
def served(fuse_device: None) -> Iterator[RunningMount]:
    with running_mount() as mounted:
        yield mounted


@pytest.fixture
def ctx_sock(served: RunningMount) -> Path:
    return served.path / "agent/ctx.sock"


@pytest.fixture(scope="module")
def workshop(served: RunningMount) -> Workshop:
    return Workshop(served)
