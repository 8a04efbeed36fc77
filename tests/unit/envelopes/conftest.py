"""Fixtures of the tests of cosh's store."""

from pathlib import Path

import pytest

from backend.envelopes import configuration
from tests.cosh_store import CoshStore


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CoshStore:
    made = CoshStore(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setattr(configuration, "SYSTEM_LAYER", str(tmp_path / "etc.toml"))
    return made
