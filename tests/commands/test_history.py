"""``ctx agent history`` on a real mount: bytes, a conversation, a page (spec 4.1)."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import Agent
from tests.commands.terminal import on_terminal
from tests.mounting import PATIENCE_S, PROJECT

BIG = 512 << 20
ESC = "\x1b[2Jboo"


def record(agent: Agent, **event: Any) -> None:
    """Appends an event to the session ``s``."""
    with (agent.directory / "s/events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")


def shown(agent: Agent, *options: str) -> list[str]:
    """The lines that are not empty."""
    ran = agent.run("agent", "history", agent.name, "--pretty", *options)
    assert (ran.code, ran.err) == (0, "")
    return [line for line in ran.out.splitlines() if line]


def test_on_a_pipe_it_is_the_bytes_of_the_file(agent: Agent) -> None:
    agent.new("s")
    lines = agent.say("s", "user", ESC) + agent.say("s", "assistant", "x", odd=[1, None])
    assert agent.run("agent", "history", agent.name).out == lines


def test_on_a_pipe_it_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    session = tmp_path / "agent/a/session/s"
    session.mkdir(parents=True)
    with (session / "messages.jsonl").open("wb") as file:
        file.truncate(BIG)
    command = f"ulimit -v {BIG // 2048}; {sys.executable} -m mountctl.ctx agent history a -s s | wc -c"
    environment = os.environ | {"CTX_HOME": str(tmp_path)}
    ran = subprocess.run(command, shell=True, cwd=PROJECT, env=environment, capture_output=True, text=True, check=True)
    assert (int(ran.stdout), ran.stderr) == (BIG, "")


def test_for_people_it_has_roles_times_and_calls_and_cannot_steer_the_terminal(agent: Agent) -> None:
    agent.new("s")
    agent.say("s", "user", ESC, timestamp="2026-01-01T00:00:00")
    record(agent, type="tool_call", run="r", id="c", name="Bash", arguments={"command": f"echo {ESC}"})
    result = [{"type": "tool_result", "tool_call_id": "c", "content": f"out {ESC}"}]
    agent.say("s", "tool", result, run="r", name="Bash")
    assert shown(agent) == [
        "── user  2026-01-01 00:00:00",
        "\\x1b[2Jboo",
        '▸ Bash {"command": "echo \\u001b[2Jboo"}',
        "  out \\x1b[2Jboo",
    ]


def test_it_shows_the_calls_that_a_message_holds(agent: Agent) -> None:
    agent.new("s")
    agent.say("s", "assistant", "", tool_calls=[{"id": "c", "name": "read", "arguments": {"path": "a"}}])
    assert '▸ read {"path": "a"}' in shown(agent)


def test_on_a_terminal_it_is_laid_out_with_colours_unless_no_color(agent: Agent) -> None:
    agent.new("s")
    agent.say("s", "assistant", "# Title\n**strong**\n- item")
    coloured = on_terminal(agent, "agent", "history", agent.name)
    plain = on_terminal(agent, "agent", "history", agent.name, NO_COLOR="1")
    assert "\x1b[1mstrong\x1b[0m" in coloured and "• " in coloured and "# Title" not in coloured
    assert "# Title\n**strong**\n- item\n" in plain and "\x1b" not in plain


@pytest.mark.parametrize(
    ("size", "pager", "paged"),
    [
        ((5, 80), "sed s/^/paged:/", True),
        ((50, 80), "sed s/^/paged:/", False),
        ((0, 0), "sed s/^/paged:/", False),
        ((5, 80), "cat", False),
        ((5, 80), "no-such-pager", False),
    ],
    ids=["too long", "it fits", "no size", "cat", "there is no such pager"],
)
def test_what_does_not_fit_the_screen_goes_through_the_pager(
    agent: Agent, size: tuple[int, int], pager: str, paged: bool
) -> None:
    agent.new("s")
    agent.say("s", "user", "\n".join(f"line {number}" for number in range(20)))
    out = on_terminal(agent, "agent", "history", agent.name, size=size, PAGER=pager, NO_COLOR="1")
    assert ("paged:line 19\n" in out) is paged and "line 19\n" in out


def test_a_pager_that_ends_early_ends_it_quietly(agent: Agent) -> None:
    agent.new("s")
    for _ in range(20):
        agent.say("s", "user", "x" * 50_000)
    out = on_terminal(agent, "agent", "history", agent.name, size=(5, 80), PAGER="head -c 20", NO_COLOR="1")
    assert out.startswith("── user") and "Error" not in out and "ctx:" not in out


def test_a_page_is_for_its_owner_alone_and_replaces_an_older_one_whole(agent: Agent, tmp_path: Path) -> None:
    agent.new("s")
    agent.say("s", "user", "<script>alert(1)</script>")
    path = tmp_path / "page.html"
    path.write_text("older")
    path.chmod(0o644)
    before = os.umask(0)
    try:
        ran = agent.run("agent", "history", agent.name, "--html", str(path))
    finally:
        os.umask(before)
    assert ran == (0, "", "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "&lt;script&gt;" in path.read_text() and "<script" not in path.read_text()
    assert os.listdir(tmp_path) == ["page.html"]


def test_a_page_goes_where_a_link_leads_and_into_a_pipe(agent: Agent, tmp_path: Path) -> None:
    agent.new("s")
    agent.say("s", "user", "hello")
    (tmp_path / "link").symlink_to(tmp_path / "page")
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE)
    for name in ("link", "pipe"):
        assert agent.run("agent", "history", agent.name, "--html", str(tmp_path / name)) == (0, "", "")
    piped, _ = reader.communicate(timeout=PATIENCE_S)
    assert (tmp_path / "page").read_bytes() == piped and b"hello" in piped
    assert (tmp_path / "link").is_symlink() and (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--html", ""), 2),
        (("--html", "DIRECTORY"), 2),
        (("--html", "DIRECTORY/"), 2),
        (("--html", "/proc/page.html"), 1),
        (("--html", "DIRECTORY/missing/page.html"), 1),
        (("--html", "DIRECTORY/x", "--pretty"), 2),
        (("--html", "DIRECTORY/x", "-s", "other"), 1),
        (("--pretty", "-s", "other"), 1),
    ],
)
def test_a_refusal_writes_nothing(agent: Agent, tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    agent.new("s")
    words = [word.replace("DIRECTORY", str(tmp_path)) for word in arguments]
    ran = agent.run("agent", "history", agent.name, *words)
    assert (ran.code, ran.out, os.listdir(tmp_path)) == (code, "", [])
    assert ran.err.startswith("ctx: ") and ran.err.count("\n") == 1


def test_a_page_says_whose_session_it_is(agent: Agent, tmp_path: Path) -> None:
    agent.new("s")
    (agent.directory / "s/meta.json").write_text('{"client":"ctx","model":"prov/m"}')
    agent.say("s", "assistant", "x", run="r")
    record(agent, type="usage", run="r", input_tokens=10, output_tokens=1)
    assert agent.run("agent", "history", agent.name, "--html", str(tmp_path / "p")).code == 0
    page = (tmp_path / "p").read_text()
    assert all(fact in page for fact in (f"{agent.name} · s", "prov/m", "10 in, 1 out", "entries"))
