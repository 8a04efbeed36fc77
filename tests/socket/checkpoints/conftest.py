"""A daemon for each back end, shared by all tests that may share one.

``reflink`` is ``copy`` but for how content is copied, and ``btrfs-loop`` is ``btrfs`` elsewhere: ``EACH_WAY`` is enough
for what does not depend on content.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkpointing import KINDS, CheckpointDaemon, checkpoint_daemon

EACH_WAY = pytest.mark.parametrize("shared", ["copy", "btrfs"], indirect=True, scope="package")


@pytest.fixture(scope="package", params=KINDS)
def shared(request: pytest.FixtureRequest) -> Iterator[CheckpointDaemon]:
    with checkpoint_daemon(request.param) as daemon:
        yield daemon


@pytest.fixture
def daemon(shared: CheckpointDaemon) -> CheckpointDaemon:
    """A running daemon, of each back end in turn."""
    return shared


@pytest.fixture(scope="package")
def shared_copying() -> Iterator[CheckpointDaemon]:
    with checkpoint_daemon("copy") as daemon:
        yield daemon


@pytest.fixture
def copying(shared_copying: CheckpointDaemon) -> CheckpointDaemon:
    """A running daemon, for what is the same with every back end."""
    return shared_copying


@pytest.fixture
def workspace(daemon: CheckpointDaemon) -> Path:
    """An ordinary directory, not registered yet."""
    return daemon.new_workspace()
