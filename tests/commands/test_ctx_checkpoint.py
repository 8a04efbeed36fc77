"""``ctx checkpoint`` against a running daemon: what it prints, its JSON, its exit codes (spec 6.2)."""

import contextlib
import io
import json
import os
import re
import socket
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.checkpoints import wire
from mountctl import checkpoint_options, cli
from mountctl.ctx import PROGRAM as CTX
from mountctl.main import PROGRAM as MOUNTCTL
from tests.checkpointing import CheckpointDaemon, Kind, checkpoint_daemon
from tests.commands.running import Ran, ctx, mountctl
from tests.people import ALICE

Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def daemon() -> Iterator[CheckpointDaemon]:
    with checkpoint_daemon("copy") as running:
        yield running


@pytest.fixture
def workspace(daemon: CheckpointDaemon) -> Path:
    return daemon.new_workspace()


@pytest.fixture
def run(daemon: CheckpointDaemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, without a terminal."""
    monkeypatch.setenv("WS_CKPT_SOCKET", str(daemon.socket))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))

    def run(*arguments: object) -> Ran:
        code = cli.run("ctx", CTX, ["checkpoint", *map(str, arguments)])
        return Ran(code, *capsys.readouterr())

    return run


def answer(ran: Ran) -> Any:
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("\n") == 1
    return json.loads(ran.out)


def test_a_tour(run: Run, workspace: Path) -> None:
    ws_id = run("init", "-w", workspace).out.strip()
    assert re.fullmatch(r"ws-[0-9a-f]{6}", ws_id)
    assert run("create", "-w", workspace, "-i", "one", "-m", "first\x1b[31m", "--metadata", '{"n":1}').out == "one\n"
    (workspace / "new").touch()
    assert run("create", "-w", ws_id, "-i", "two", "--pin").out == "two\n"
    rows = [line.split("\t") for line in run("list", "-w", workspace).out.splitlines()]
    assert [(row[0], row[1], row[3], row[4]) for row in rows] == [
        (str(workspace), "one", "", "first\\x1b[31m"),
        (str(workspace), "two", "pinned", ""),
    ]
    assert run("diff", "-w", workspace, "-f", "one", "-t", "two").out == "+  new\n"
    assert run("rollback", "-w", workspace, "-s", "one").out == f"{ws_id} is now what one holds\n"
    assert not (workspace / "new").exists()
    assert f"{ws_id}\t{workspace}\t2\n" in run("status").out
    assert run("cleanup", "-w", workspace, "--keep", "0").out == "deleted one\n"
    assert run("recover", "-w", workspace, "--force").out == f"recovered {workspace}\n"
    assert run("list", "-w", workspace).code == 1


def test_json(run: Run, workspace: Path) -> None:
    ws_id = answer(run("init", "-w", workspace, "--json"))["ws_id"]
    assert answer(run("create", "-w", workspace, "-i", "one", "--metadata", '{"b":[1],"a":null}', "--json")) == {
        "id": "one",
        "skipped": None,
    }
    (entry,) = answer(run("list", "-w", workspace, "--json"))["snapshots"]
    created_at = entry["meta"].pop("created_at")
    assert created_at.endswith("Z")
    meta = {"message": None, "metadata": {"a": None, "b": [1]}, "pinned": False, "missing": False}
    assert entry == {"id": "one", "workspace": str(workspace), "meta": meta}
    changes = answer(run("diff", "-w", workspace, "-f", "one", "-t", "one", "--json"))
    assert changes == {"changes": []}
    status = answer(run("status", "-w", workspace, "--json"))
    assert status["workspaces"] == [{"ws_id": ws_id, "path": str(workspace), "snapshot_count": 1}]
    assert set(status) == {"uptime_secs", "workspaces", "fs_total_bytes", "fs_used_bytes"}
    assert answer(run("rollback", "-w", workspace, "-s", "on", "--json")) == {"ws_id": ws_id, "id": "one"}
    assert answer(run("cleanup", "-w", workspace, "--json")) == {"removed": []}
    config = answer(run("config", "--json"))
    assert config["auto_cleanup_keep"] == {"Count": 20} and config["img_max_percent"] == 40.0
    assert answer(run("reload", "--json")) == {"reloaded": True}
    health = {"over_limit_workspace_count", "fs_total_bytes", "fs_used_bytes"}
    assert set(answer(run("health", "--json"))) == health
    assert answer(run("delete", "-s", "one", "-w", workspace, "--json")) == {"id": "one"}
    assert answer(run("recover", "-w", workspace, "--force", "--json")) == {"recovered": [str(workspace)]}


def test_a_checkpoint_without_an_id_gets_one(run: Run, workspace: Path) -> None:
    ids = [run("create", "-w", workspace).out.strip() for _ in range(2)]
    assert ids[0] != ids[1] and all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{6}", id) for id in ids)


@pytest.mark.parametrize("kind", ["copy", "btrfs"])
def test_in_the_directory_itself(
    kind: Kind, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell that is in a workspace stays in a directory that is gone, and on btrfs that has another name."""

    def run(*arguments: str) -> Ran:
        code = cli.run("ctx", CTX, ["checkpoint", *arguments])
        return Ran(code, *capsys.readouterr())

    with checkpoint_daemon(kind) as daemon, contextlib.chdir(daemon.base):
        workspace = daemon.new_workspace()
        (workspace / "below").mkdir()
        monkeypatch.setenv("WS_CKPT_SOCKET", str(daemon.socket))
        monkeypatch.setenv("PWD", str(workspace))
        os.chdir(workspace)
        for id in ("one", "two"):
            assert run("create", "-i", id) == (0, f"{id}\n", "")
            os.chdir(workspace)
        for id in ("one", "two"):
            assert run("rollback", "-w", ".", "-s", id).code == 0
        assert run("list").out.count("\n") == run("list", "-w", str(workspace)).out.count("\n") == 2
        assert run("list", "-w", "below").code == 1
        monkeypatch.setenv("PWD", "/no/such/place")
        gone = run("list", "-w", ".")
        assert (gone.code, gone.err) == (1, "ctx: the current directory is gone: name the workspace with -w\n")
        assert run("list", "-w", str(workspace)).code == 0
        monkeypatch.setenv("PWD", str(daemon.base))
        os.chdir(workspace)
        assert run("create", "-i", "three") == (0, "three\n", "")


def test_what_is_skipped_is_no_error(run: Run, workspace: Path) -> None:
    (workspace / "file").unlink()
    assert run("create", "-w", workspace) == (0, "", "Empty workspace, no snapshot created.\n")
    skipped = answer(run("create", "-w", workspace, "--json"))
    assert skipped == {"id": None, "skipped": "Empty workspace, no snapshot created."}


def test_a_pinned_snapshot_needs_force_where_nobody_can_be_asked(run: Run, workspace: Path) -> None:
    run("create", "-w", workspace, "-i", "one", "--pin")
    refused = run("delete", "-w", workspace, "-s", "one")
    assert (refused.code, refused.out) == (1, "") and "pinned" in refused.err
    assert run("delete", "-w", workspace, "-s", "one", "--force").out == "deleted one\n"


def test_recover_needs_force_where_nobody_can_be_asked(run: Run, workspace: Path) -> None:
    run("create", "-w", workspace, "-i", "one")
    assert run("recover", "-w", workspace).code == 2
    assert run("recover", "-w", workspace, "--all").code == 2
    assert run("list", "-w", workspace).out.count("\n") == 1


def test_errors(run: Run, workspace: Path) -> None:
    assert run("rollback", "-w", workspace, "-s", "one") == (1, "", f"ctx: workspace not found: {workspace}\n")
    assert run("init", "-w", "/no/such/place") == (1, "", "ctx: path does not exist: /no/such/place\n")
    for keep in ("-1", "x", "", "4294967296"):
        assert run("cleanup", "-w", workspace, "--keep", keep).code == 2
    for seconds in ("-1", "0", "nan", "x", ""):
        assert run("list", "--timeout", seconds).code == 2
    for command in ("init", "create", "recover"):  # of what a variable was to hold
        assert run(command, "-w", "").code == run(command, "-w", " ").code == 2
    assert run("diff", "-w", workspace).code == 2
    assert run("create", "-w", workspace, "-i", "../evil").code == 1


def test_no_daemon(daemon: CheckpointDaemon) -> None:
    ran = ctx("checkpoint", "status", "--socket", str(daemon.base / "none"))
    assert (ran.code, ran.out) == (69, "") and "start `mountctl checkpointd`" in ran.err


def test_another_user_has_nothing(daemon: CheckpointDaemon, workspace: Path) -> None:
    daemon.checkpoint(workspace, "one")
    assert (
        ALICE.does(
            checkpoint_options.ask, Namespace(socket=str(daemon.socket), timeout=60.0), lambda client: client.list()
        )
        == ()
    )


ESC = "\x1b[31m"
HOSTILE: dict[str, wire.Response] = {
    "init": wire.InitOk(ESC),
    "create -i x": wire.CheckpointSkipped(ESC),
    "rollback -s x": wire.RollbackOk(ESC, ESC),
    "delete -s x": wire.DeleteOk(ESC),
    "list": wire.ListOk(
        (wire.SnapshotEntry(ESC, ESC, wire.SnapshotMeta(ESC, f'"{ESC[1:]}"', False, "2026-01-01T00:00:00Z", False)),)
    ),
    "diff -f x -t y": wire.DiffOk((wire.DiffEntry(ESC, wire.ChangeType.Renamed, ESC),)),
    "status": wire.StatusOk(wire.StatusReport(0, (wire.WorkspaceInfo(ESC, ESC, 0),), 0, 0)),
    "cleanup": wire.CleanupOk((ESC,)),
    "config": wire.ConfigOk(wire.ConfigReport(ESC, ESC, ESC, False, wire.Count(1), 0, 0, 0, 0.0)),
    "recover --force": wire.RecoverOk(ESC),
    "health": wire.Error(wire.ErrorCode.InternalError, ESC),
}


@pytest.mark.parametrize("words", HOSTILE)
@pytest.mark.parametrize("json_option", [[], ["--json"]], ids=["text", "json"])
def test_what_a_daemon_says_steers_no_terminal(tmp_path: Path, words: str, json_option: list[str]) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(wire.frame(wire.encode_response(HOSTILE[words])))

        daemon = threading.Thread(target=answer)
        daemon.start()
        ran = ctx("checkpoint", *words.split(), *json_option, "--socket", str(path))
        daemon.join()
    assert ran.code == (1 if words == "health" else 0)
    assert "[31m" in ran.out + ran.err and "\x1b" not in ran.out + ran.err


def test_only_one_daemon_has_a_state_directory(daemon: CheckpointDaemon) -> None:
    second = mountctl("checkpointd", "--socket", str(daemon.base / "other"), "--state-dir", str(daemon.state))
    assert second.code == 1 and "another checkpoint daemon" in second.err
    stolen = mountctl("checkpointd", "--socket", str(daemon.socket), "--state-dir", str(daemon.base / "state2"))
    assert stolen.code == 1 and "answers at" in stolen.err


def test_only_root_serves(daemon: CheckpointDaemon) -> None:
    assert ALICE.does(cli.run, "mountctl", MOUNTCTL, ["checkpointd", "--socket", str(daemon.base / "other")]) == 13
