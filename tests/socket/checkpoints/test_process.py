"""The daemon as a process: its socket, its lock, its signals, its image (spec 6.3; notes 2.1, 2.2)."""

import json
import os
import signal
import socket
import stat
import subprocess
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.checkpoints import wire
from backend.checkpoints.errors import DaemonRunning
from ctxfs.checkpoints.server import listen
from mountctl import checkpointd
from mountctl.cli import DENIED, Failure
from tests.checkpointing import MIB, CheckpointDaemon, checkpoint_daemon, receive_all
from tests.commands.running import mountctl
from tests.mounting import PATIENCE_S, wait_until
from tests.people import ALICE


@pytest.fixture
def daemon() -> Iterator[CheckpointDaemon]:
    with checkpoint_daemon("copy") as running:
        yield running


def test_only_root_starts_it() -> None:
    with pytest.raises(Failure, match="must be run by root") as refused:
        ALICE.does(checkpointd.run, Namespace())
    assert refused.value.exit_code == DENIED


def test_the_lock_says_who_holds_it_and_goes_with_the_socket(daemon: CheckpointDaemon) -> None:
    assert daemon.process is not None
    lock = daemon.state / "daemon.lock"
    assert lock.read_text() == f"{daemon.process.pid}\n"
    daemon.kill()
    assert lock.exists() and daemon.socket.exists()
    daemon.start()
    assert "the last daemon did not end as it should" in daemon.log.read_text()
    assert daemon.stop() == 0
    assert not lock.exists() and not daemon.socket.exists()


def test_what_is_no_socket_is_not_removed(daemon: CheckpointDaemon) -> None:
    assert daemon.stop() == 0
    daemon.socket.write_text("a file")
    ran = mountctl("checkpointd", "--socket", str(daemon.socket), "--state-dir", str(daemon.state))
    assert ran.code != 0 and daemon.socket.read_text() == "a file"
    daemon.socket.unlink()


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_everybody_reaches_the_socket_and_root_alone_can_replace_it(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "made/for it/socket"
    before = os.umask(umask)
    try:
        listener = listen(path)
    finally:
        os.umask(before)
    os.close(listener.socket.detach())
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, path.parents[1])] == [0o666, 0o755, 0o755]


def test_the_socket_of_a_daemon_that_has_its_hands_full_is_left(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(path))
        busy.listen(0)
        waiting.connect(str(path))
        with pytest.raises(DaemonRunning, match="answers at"):
            listen(path)
    assert path.exists()


def test_a_hangup_does_nothing(daemon: CheckpointDaemon) -> None:
    assert daemon.process is not None
    ignored = next(
        line for line in Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines() if "SigIgn" in line
    )
    assert int(ignored.split()[1], 16) & 1 << (signal.SIGHUP - 1), "from its start on"
    daemon.process.send_signal(signal.SIGHUP)
    daemon.expect(wire.ConfigOk, wire.Config())
    assert daemon.process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_that_was_taken_is_answered_before_it_ends(daemon: CheckpointDaemon, number: signal.Signals) -> None:
    """The rest of it comes when nobody else is let in any more."""
    assert daemon.process is not None
    workspace = daemon.new_workspace()
    sent = wire.frame(wire.encode_request(wire.Checkpoint(str(workspace), "one")))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(daemon.socket))
        connection.sendall(sent[:10])
        daemon.expect(wire.ConfigOk, wire.Config())
        daemon.process.send_signal(number)
        wait_until(lambda: not daemon.answers(), "the end of accepting")
        connection.sendall(sent[10:])
        assert wire.decode_response(receive_all(connection)[4:]) == wire.CheckpointOk("one")
    assert daemon.process.wait(PATIENCE_S) == 0
    daemon.start()
    assert daemon.ids(workspace) == ["one"]


def test_a_slow_reader_of_a_long_answer_keeps_nobody_waiting(daemon: CheckpointDaemon) -> None:
    workspace = daemon.new_workspace()
    message = "x" * MIB
    for number in range(8):
        daemon.checkpoint(workspace, f"s{number}", message=message)
    with socket.socket(socket.AF_UNIX) as slow:
        slow.settimeout(PATIENCE_S)
        slow.connect(str(daemon.socket))
        slow.sendall(wire.frame(wire.encode_request(wire.List(str(workspace)))))
        first = slow.recv(100)
        daemon.checkpoint(workspace, "more")
        received = first + receive_all(slow)
    answer = wire.decode_response(received[4:])
    assert isinstance(answer, wire.ListOk) and len(answer.snapshots) == 8


def test_the_state_of_another_daemon_of_the_protocol_is_read(daemon: CheckpointDaemon) -> None:
    """What an upstream daemon left of a workspace whose snapshots are gone."""
    assert daemon.stop() == 0
    path = str(daemon.new_workspace())
    registered = {
        "ws_id": "ws-abcdef",
        "workspace_path": path,
        "registered_at": "2026-01-01T00:00:00.5Z",
        "origin_backend": "BtrfsBase",
    }
    paths = {
        "backend": "BtrfsBase",
        "mount_path": "/none",
        "data_root": "/none/ws-ckpt-data",
        "snapshots_root": "/none",
    }
    backend = {"backend_type": "BtrfsBase", "selection_method": "auto-detect", "selected_at": "2026-01-01T00:00:00Z"}
    state = {"version": 1, "backend": backend, "paths": paths, "workspaces": [registered]}
    (daemon.state / "state.json").write_text(json.dumps(state))
    index = daemon.state / "indexes/ws-abcdef"
    index.mkdir()
    record = {"message": "m", "pinned": True, "created_at": "2026-01-01T00:00:00Z", "metadata": {"a": 1}}
    (index / "index.json").write_text(json.dumps({"workspace_path": path, "snapshots": {"one": record}}))
    daemon.allow("something else than the link|was not repaired whole")
    daemon.start()
    (entry,) = daemon.expect(wire.ListOk, wire.List("ws-abcdef")).snapshots
    meta = wire.SnapshotMeta("m", '{"a":1}', True, "2026-01-01T00:00:00Z", True)
    assert entry == wire.SnapshotEntry("one", path, meta)


def test_an_image_is_mounted_again_after_a_reboot() -> None:
    with checkpoint_daemon("btrfs-loop") as daemon:
        workspace = daemon.new_workspace()
        daemon.checkpoint(workspace, "one")
        assert daemon.stop() == 0
        subprocess.run(["umount", daemon.base / "loop"], check=True)
        daemon.start()
        (workspace / "file").write_text("second\n")
        daemon.rollback(workspace, "one")
        assert (workspace / "file").read_text() == "first\n"


def test_an_image_that_is_gone_is_not_made_again() -> None:
    with checkpoint_daemon("btrfs-loop") as daemon:
        workspace = daemon.new_workspace()
        daemon.checkpoint(workspace, "one")
        assert daemon.stop() == 0
        image, aside = daemon.state / "btrfs-data.img", daemon.state / "aside"
        subprocess.run(["umount", daemon.base / "loop"], check=True)
        image.rename(aside)
        ran = mountctl(
            "checkpointd", "--socket", str(daemon.socket), "--state-dir", str(daemon.state), *daemon.arguments
        )
        assert ran.code != 0 and "is gone" in ran.err
        aside.rename(image)
        daemon.start()
        daemon.rollback(workspace, "one")


def test_an_image_grows_and_shrinks_with_its_setting() -> None:
    with checkpoint_daemon("btrfs-loop") as daemon:
        workspace = daemon.new_workspace()
        daemon.checkpoint(workspace, "one")
        sizes = []
        for percent in (5.0, 2.0, 4.0):
            total = os.statvfs(daemon.state).f_frsize * os.statvfs(daemon.state).f_blocks
            daemon.config.write_text(f"[backend.btrfs-loop]\nimg_size = 1000\nimg_max_percent = {percent}\n")
            daemon.restart()
            sizes.append(daemon.expect(wire.HealthAdvisoryOk, wire.HealthAdvisory()).fs_total_bytes)
            assert abs(sizes[-1] - total * percent / 100) < 64 * MIB
            daemon.rollback(workspace, "one")
        assert sizes[1] < sizes[2] < sizes[0]


def test_a_config_request_says_what_runs(daemon: CheckpointDaemon) -> None:
    daemon.config.write_text("auto_cleanup = true\nunknown = 1\n[backend.btrfs-base]\nbtrfs_mount = '/x'\n")
    daemon.restart()
    assert daemon.expect(wire.ConfigOk, wire.Config()).config.auto_cleanup
