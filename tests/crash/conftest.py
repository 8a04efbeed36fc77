"""Fixtures of tests of what breaks."""

from collections.abc import Iterator

import pytest

from tests.crash.checkpoint_scenes import Place, place_on


@pytest.fixture(scope="module", params=["copy", "btrfs"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A state directory and workspaces on a disk of a back end's."""
    with place_on(request.param) as made:
        yield made
