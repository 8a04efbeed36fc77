"""Fixtures of all layers: running mounts, and a time limit for every test.

``@pytest.mark.limit(seconds)`` changes the limit, ``@pytest.mark.store("jsonl")`` the store of ``mount``.
"""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.mounting import TIME_LIMIT_S, RunningMount, running_mount, time_limit

# A busy machine is no fault: no example is judged by its time. CI tries the same examples each time.
settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    # Where tests run beside one another, each process of theirs ignores it, and so would all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "limit(seconds): how long the test may take before its mounts are aborted")
    config.addinivalue_line("markers", "longer: takes minutes; run with `-m longer`")
    config.addinivalue_line("markers", "store(format): the format of the store that `mount` mounts")


@pytest.fixture(autouse=True)
def _limited(request: pytest.FixtureRequest) -> Iterator[None]:
    marker = request.node.get_closest_marker("limit")
    with time_limit(marker.args[0] if marker else TIME_LIMIT_S):
        yield


@pytest.fixture(scope="session")
def fuse_device() -> None:
    """Fails, rather than skips, where no test of a mount can run: a suite that tests nothing is not green."""
    assert os.access("/dev/fuse", os.R_OK | os.W_OK), "/dev/fuse cannot be opened: see README, Requirements"


@pytest.fixture
def mount(request: pytest.FixtureRequest, fuse_device: None) -> Iterator[RunningMount]:
    """A fresh mount of its own store, in its own process."""
    marker = request.node.get_closest_marker("store")
    with running_mount(marker.args[0] if marker else "sqlite") as mounted:
        yield mounted
