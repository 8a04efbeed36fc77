"""``ctx agent session checkpoint`` and ``rewind`` on a mount, with a checkpoint daemon (spec 6.8)."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.checkpoints import wire
from tests.checkpointing import CheckpointDaemon, checkpoint_daemon
from tests.commands.conftest import Agent
from tests.commands.running import Ran


@pytest.fixture(scope="module")
def daemon() -> Iterator[CheckpointDaemon]:
    with checkpoint_daemon("copy") as running:
        yield running


@pytest.fixture
def workspace(daemon: CheckpointDaemon) -> Path:
    return daemon.new_workspace()


class Working:
    """An agent that works on the host, whose session ``s`` works in a workspace."""

    def __init__(self, agent: Agent, daemon: CheckpointDaemon, workspace: Path) -> None:
        self.agent = agent
        self.daemon = daemon
        self.log = agent.directory / "s/events.jsonl"
        self.define("root", "/")
        agent.new("s")
        (agent.directory / "s/cwd").write_text(f"{workspace}\n")

    def define(self, file: str, value: str) -> None:
        directory = self.agent.mount.path / f"agent/{self.agent.name}.d"
        directory.mkdir(exist_ok=True)
        (directory / file).write_text(f"{value}\n")

    def run(self, *arguments: str) -> Ran:
        command, *rest = arguments
        return self.agent.run(
            "agent", "session", command, self.agent.name, "-s", "s", "--socket", str(self.daemon.socket), *rest
        )

    def answer(self, *arguments: str) -> Any:
        ran = self.run(*arguments, "--json")
        assert (ran.code, ran.err) == (0, "")
        return json.loads(ran.out)

    def events(self) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [event for event in found if event["type"] == "checkpoint"]

    def entries(self) -> int:
        return int(os.getxattr(self.agent.directory / "s", "user.ctx.n"))


@pytest.fixture
def working(agent: Agent, daemon: CheckpointDaemon, workspace: Path) -> Working:
    return Working(agent, daemon, workspace)


def test_a_checkpoint_is_taken_and_recorded(working: Working, daemon: CheckpointDaemon, workspace: Path) -> None:
    working.agent.say("s", "user", "Hello")
    n = working.entries()
    taken = working.answer("checkpoint", "-m", "why")
    assert taken["workspace"] == str(workspace)
    (entry,) = daemon.expect(wire.ListOk, wire.List(str(workspace))).snapshots
    uuid = os.getxattr(working.agent.directory / "s", "user.ctx.uuid").decode()
    assert (entry.id, entry.meta.message) == (taken["id"], "why")
    metadata = {"agent": working.agent.name, "session": "s", "uuid": uuid, "n": n}
    assert json.loads(entry.meta.metadata or "") == metadata
    assert working.events() == [{"type": "checkpoint", "workspace": str(workspace), "snapshot": entry.id}]


def test_rewind_takes_the_files_back_too(working: Working, daemon: CheckpointDaemon, workspace: Path) -> None:
    file = workspace / "file"
    ends = []
    for text in ("one", "two", "three"):
        file.write_text(text)
        working.agent.say("s", "user", text)
        working.answer("checkpoint")
        ends.append(working.entries())
    file.write_text("now")
    rewound = working.answer("rewind", "--at", str(ends[1]), "--files")
    assert file.read_text() == "two"
    branch = working.agent.directory / rewound["session"]
    assert [json.loads(line)["content"] for line in (branch / "messages.jsonl").read_text().splitlines()] == [
        "one",
        "two",
    ]
    assert rewound["restored"] == working.events()[1]["snapshot"]
    daemon.rollback(workspace, rewound["saved"])
    assert file.read_text() == "now"


def test_a_checkpoint_is_of_the_entry_that_it_was_taken_at(working: Working, workspace: Path) -> None:
    """Entry N is the first that a session rewound to N has not: a checkpoint that is that entry is of that state."""
    working.agent.say("s", "user", "one")
    at = working.entries()
    working.answer("checkpoint")
    (workspace / "file").write_text("changed")
    assert working.answer("rewind", "--at", str(at), "--files")["restored"] == working.events()[0]["snapshot"]
    assert (workspace / "file").read_text() == "first\n"


def test_rewind_without_files_leaves_them_alone(working: Working, workspace: Path) -> None:
    working.agent.say("s", "user", "one")
    rewound = working.answer("rewind", "--at", "1")
    assert (rewound["restored"], rewound["saved"]) == (None, None)
    assert (working.agent.directory / rewound["session"] / "messages.jsonl").exists()


def test_nothing_happens_where_it_cannot(working: Working, workspace: Path) -> None:
    working.agent.say("s", "user", "one")
    beyond = working.run("rewind", "--at", "99")
    assert beyond.code == 1 and "beyond" in beyond.err
    none = working.run("rewind", "--at", "1", "--files")
    assert none.code == 1 and "not found" in none.err
    working.answer("checkpoint")
    early = working.run("rewind", "--at", "0", "--files")
    assert early.code == 1 and "no checkpoint" in early.err
    assert [name for name in os.listdir(working.agent.directory) if name not in ("index", "s")] == []


def test_files_that_cannot_be_taken_back_leave_no_session(
    working: Working, daemon: CheckpointDaemon, workspace: Path
) -> None:
    working.agent.say("s", "user", "one")
    snapshot = working.answer("checkpoint")["id"]
    (workspace / "file").write_text("now")
    shutil.rmtree(daemon.state / "snapshots" / daemon.init(workspace) / snapshot)
    failed = working.run("rewind", "--at", "1", "--files")
    assert failed.code == 1 and failed.out == ""
    assert (workspace / "file").read_text() == "now"
    assert [name for name in os.listdir(working.agent.directory) if name not in ("index", "s")] == []


def test_a_cwd_in_the_agents_view(working: Working, daemon: CheckpointDaemon, workspace: Path) -> None:
    (workspace / "below").mkdir()
    (workspace / "below/file").write_text("x")
    (daemon.base / "link").symlink_to("/work")
    working.define("root", str(daemon.base))
    working.define("mount", f"{workspace}\t/work\trw\n{daemon.area}\t/all\tro")
    for cwd, found in (
        ("/work", workspace),
        ("/work/below", workspace / "below"),
        (f"/all/{workspace.name}/below", workspace / "below"),
        ("/link/below", workspace / "below"),
    ):
        (working.agent.directory / "s/cwd").write_text(f"{cwd}\n")
        assert working.answer("checkpoint")["workspace"] == str(found)
    (working.agent.directory / "s/cwd").write_text("/work/none\n")
    missing = working.run("checkpoint")
    assert missing.code == 1 and "no directory in the agent's view" in missing.err


def test_a_directory_of_the_mount_that_cannot_be_put_back_is_refused(agent: Agent, daemon: CheckpointDaemon) -> None:
    agent.new("s")
    root = agent.directory.parent / "root"
    (root / "file").write_text("x")
    ran = agent.run("agent", "session", "checkpoint", agent.name, "-s", "s", "--socket", str(daemon.socket))
    assert ran.code == 1 and "nothing can be put in place" in ran.err


def test_without_a_daemon(working: Working) -> None:
    ran = working.agent.run("agent", "session", "checkpoint", working.agent.name, "-s", "s", "--socket", "/none")
    assert (ran.code, working.events()) == (69, [])
