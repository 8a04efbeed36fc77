"""The configuration of a running daemon, reloading it, and what it does unasked (notes 2.11, 2.12)."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.checkpoints import wire
from tests.checkpointing import MIB, TIMEOUT_S, CheckpointDaemon, checkpoint_daemon
from tests.mounting import wait_until


@pytest.fixture(scope="module")
def daemon() -> Iterator[CheckpointDaemon]:
    """One whose configuration tests may change."""
    with checkpoint_daemon("copy", "--log-level", "debug") as running:
        running.allow("full by more than|configuration is not used")
        yield running


@pytest.fixture(autouse=True)
def _defaults_afterwards(daemon: CheckpointDaemon) -> Iterator[None]:
    yield
    reload(daemon, "")


def reload(daemon: CheckpointDaemon, text: str) -> None:
    daemon.config.write_text(text)
    daemon.expect(wire.ReloadConfigOk, wire.ReloadConfig())


def report(daemon: CheckpointDaemon) -> wire.ConfigReport:
    return daemon.expect(wire.ConfigOk, wire.Config()).config


def snapshots(daemon: CheckpointDaemon, pinned: str, ids: str) -> Path:
    workspace = daemon.new_workspace()
    for id in ids:
        daemon.checkpoint(workspace, id, pin=id in pinned)
    return workspace


def test_the_defaults(daemon: CheckpointDaemon) -> None:
    assert report(daemon) == wire.ConfigReport(
        mount_path=str(daemon.state / "snapshots"),
        socket_path=str(daemon.socket),
        log_level="debug",
        auto_cleanup=False,
        auto_cleanup_keep=wire.Count(20),
        auto_cleanup_interval_secs=86400,
        health_check_interval_secs=300,
        img_size=30,
        img_max_percent=40.0,
    )


def test_reloading_takes_what_may_change_while_it_runs(daemon: CheckpointDaemon) -> None:
    reload(daemon, 'auto_cleanup_keep = "30d"\nhealth_check_interval_secs = 7\n[backend.btrfs-loop]\nimg_size = 5')
    assert (report(daemon).auto_cleanup_keep, report(daemon).health_check_interval_secs) == (wire.Age("30d"), 7)
    assert report(daemon).img_size == 30
    reload(daemon, "")
    assert report(daemon).auto_cleanup_keep == wire.Count(20)


def test_a_bad_file_changes_nothing(daemon: CheckpointDaemon) -> None:
    reload(daemon, "health_check_interval_secs = 7")
    for text in ("auto_cleanup_keep = -1", "nonsense"):
        daemon.config.write_text(text)
        daemon.refuses("InternalError", "Failed to reload config: ", wire.ReloadConfig())
        assert report(daemon).health_check_interval_secs == 7


def test_a_bad_file_at_the_start_is_a_warning(daemon: CheckpointDaemon) -> None:
    daemon.config.write_text("nonsense")
    daemon.restart()
    assert report(daemon).auto_cleanup_keep == wire.Count(20)


@pytest.mark.parametrize(("keep", "left"), [("2", "acde"), ("1", "ade"), ('"1s"', "ad")])
def test_auto_cleanup(daemon: CheckpointDaemon, keep: str, left: str) -> None:
    workspace = snapshots(daemon, "ad", "abcde")
    reload(daemon, f"auto_cleanup = true\nauto_cleanup_keep = {keep}\nauto_cleanup_interval_secs = 1")
    wait_until(lambda: "".join(daemon.ids(workspace)) == left, "auto-cleanup", TIMEOUT_S)


def test_no_auto_cleanup_unless_it_is_asked_for(daemon: CheckpointDaemon) -> None:
    """Its interval is over when the disk, which has the same one, has been looked at twice."""
    workspace = snapshots(daemon, "", "abc")
    before = daemon.log.read_text().count("full by more than")
    filler = daemon.area / "filler"
    subprocess.run(["fallocate", "-l", str(free_bytes(daemon) - 4 * MIB), filler], check=True)
    reload(daemon, "auto_cleanup_keep = 1\nauto_cleanup_interval_secs = 1\nhealth_check_interval_secs = 1")
    wait_until(
        lambda: daemon.log.read_text().count("full by more than") >= before + 2, "two looks at the disk", TIMEOUT_S
    )
    filler.unlink()
    assert daemon.ids(workspace) == ["a", "b", "c"]
    assert re.search(r"WARNING .*full by more than 90 %: \d+ of \d+ bytes", daemon.log.read_text())


def free_bytes(daemon: CheckpointDaemon) -> int:
    found = daemon.expect(wire.HealthAdvisoryOk, wire.HealthAdvisory())
    return found.fs_total_bytes - found.fs_used_bytes
