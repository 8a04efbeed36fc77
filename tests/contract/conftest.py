from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.sessions import Sessions
from tests.contract.harness import Harness


@pytest.fixture(params=["sqlite", "memory", "jsonl"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """A harness at a fresh store of each kind."""
    harness = Harness(request.param, tmp_path)
    yield harness
    harness.store.close()


@pytest.fixture(params=["sqlite", "jsonl"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """A harness at a fresh store of each kind that survives a restart."""
    harness = Harness(request.param, tmp_path)
    yield harness
    harness.store.close()


@pytest.fixture
def sessions(at: Harness) -> Sessions:
    return Sessions(at.store, clock=at.clock)
