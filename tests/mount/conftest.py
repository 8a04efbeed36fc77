"""Fixtures of the mount's tests: Alice's home on a fresh mount."""

import pytest

from tests.mount.scenery import Home
from tests.mounting import RunningMount


@pytest.fixture
def home(mount: RunningMount) -> Home:
    return Home(mount)
