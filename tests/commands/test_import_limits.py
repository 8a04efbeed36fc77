"""``ctx agent import`` of what is large or many, in bounded memory (spec 4.2)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.claude_lines import UUID, claude_line
from tests.commands.conftest import Agent
from tests.mounting import PROJECT

IN_48_MIB = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (48 << 20, 48 << 20))
from mountctl.ctx import main
sys.exit(main())
"""


def in_48_mib(agent: Agent, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs ``ctx`` with so much memory for its data."""
    return subprocess.run(
        [sys.executable, "-c", IN_48_MIB, *command],
        env=agent.mount.environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_line_of_12_mib_is_imported_and_exported_whole(agent: Agent, tmp_path: Path) -> None:
    big = "\U0001f600 x" * (2 << 20)
    result = [{"type": "tool_result", "tool_use_id": "t", "content": big}]
    (tmp_path / f"{UUID}.jsonl").write_text(claude_line("user", "go") + claude_line("user", result))
    assert agent.run("agent", "import", agent.name, "--from", "claude-code", str(tmp_path)).code == 0
    out = tmp_path / "out"
    assert agent.run("agent", "export", agent.name, "-s", UUID, "--to", "jsonl", str(out)).code == 0
    (_, exported) = (out / f"{UUID}.jsonl").read_text().splitlines()
    assert json.loads(exported)["content"][0]["content"] == [{"type": "text", "text": big}]
    ran = agent.run("agent", "import", agent.name, "--from", "jsonl", str(out))
    assert " 0 lines added, 2 already there" in ran.out


def test_many_sessions_are_imported_in_bounded_memory(agent: Agent, tmp_path: Path) -> None:
    for number in range(300):
        name = f"{number:08x}-0000-4000-8000-000000000000"
        (tmp_path / f"{name}.jsonl").write_text(claude_line("user", f"{number} {'x' * 50_000}"))
    command = ("agent", "import", agent.name, "--from", "claude-code", str(tmp_path))
    ran = in_48_mib(agent, *command)
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", "300 sessions: 900 lines added, 0 already there\n")
    assert len(os.listdir(agent.directory / "index/by-uuid")) == 300


@pytest.mark.parametrize("case", ["new", "again", "again, with a line of somebody else's after the first"])
def test_a_big_file_is_imported_in_bounded_memory(agent: Agent, tmp_path: Path, case: str) -> None:
    source = tmp_path / "big.jsonl"
    command = ("agent", "import", agent.name, "--from", "jsonl", str(source))
    lines = [json.dumps({"role": "user", "content": f"{n} {'x' * 5000}"}) + "\n" for n in range(12000)]
    source.write_text(lines[0])
    mine = ""
    if case.endswith("first"):
        agent.run(*command)
        mine = agent.say("big", "user", "mine")
    source.write_text("".join(lines))
    if case != "new":
        assert agent.run(*command).code == 0
    ran = in_48_mib(agent, *command)
    assert (ran.returncode, ran.stderr) == (0, "")
    added = len(lines) if case == "new" else 0
    assert f"{added} lines added, {len(lines) - added} already there" in ran.stdout
    assert (agent.directory / "big/messages.jsonl").stat().st_size == source.stat().st_size + len(mine)
