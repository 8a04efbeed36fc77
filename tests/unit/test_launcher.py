"""The launcher of a daemon that was killed ends its FUSE connection, whichever it learns of first."""

import os
from pathlib import Path

import pytest

from ctxfs import probe
from ctxfs.agents.launcher import Connections


@pytest.mark.parametrize("found", [True, False])
@pytest.mark.parametrize("dies_first", [True, False])
def test_a_connection_ends_with_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_first: bool, found: bool
) -> None:
    control = tmp_path / "abort"
    control.touch()
    monkeypatch.setattr(probe, "connection", lambda _: os.open(control, os.O_WRONLY) if found else None)
    connections = Connections()
    if dies_first:
        connections.daemon_died()
    connections.add(42)
    assert (control.read_bytes() != b"") == (dies_first and found)
    connections.daemon_died()
    assert (control.read_bytes() != b"") == found
    for descriptor in connections.descriptors:
        os.close(descriptor)
