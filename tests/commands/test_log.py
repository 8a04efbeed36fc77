"""``ctx agent log`` on a real mount: every entry, one a line, and those to come (spec 4.1, 1.7, 1.10)."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mountctl.ctx_agent_log import _followed, _line
from tests.commands.conftest import Agent
from tests.commands.terminal import on_terminal
from tests.mount.acting import write_once
from tests.mounting import PATIENCE_S, PROJECT, running_mount


def filled(agent: Agent) -> Path:
    """A session with entries of every kind."""
    agent.new("s")
    session = agent.directory / "s"
    agent.say("s", "user", "hello\nthere \x1b[2J")
    agent.say("s", "assistant", [{"type": "text", "text": "hi"}, {"type": "image", "path": "x.png"}])
    (session / "state").write_text("done\n")
    os.setxattr(session, "user.ctx.compact", b'{"before":2,"summary":[],"reason":"full"}')
    return session


def test_on_a_pipe_it_is_the_bytes_of_the_file(agent: Agent) -> None:
    session = filled(agent)
    content = (session / "context/log.jsonl").read_text()
    assert [json.loads(line)["n"] for line in content.splitlines()] == [0, 1, 2, 3]
    assert agent.run("agent", "log", agent.name) == (0, content, "")
    assert agent.run("agent", "log", agent.name, "-s", "s").out == content


def test_for_people_an_entry_is_a_line_that_cannot_steer_the_terminal(agent: Agent) -> None:
    filled(agent)
    out = agent.run("agent", "log", agent.name, "--pretty").out
    found = [(line[:6].strip(), line[29:41].strip(), line[41:]) for line in out.splitlines()]
    assert found == [
        ("0", "user", "hello there \\x1b[2J"),
        ("1", "assistant", "hi [image]"),
        ("2", "state", '{"from": "idle", "state": "done"}'),
        ("3", "cut", "before 2: full"),
    ]


def result_of(content: object, depth: int) -> list[dict[str, object]]:
    return [{"type": "tool_result", "content": content if depth == 1 else result_of(content, depth - 1)}]


@pytest.mark.parametrize("depth", [1, 60])
def test_the_result_of_a_call_is_shown_however_deep_it_is(depth: int) -> None:
    message = {"role": "tool", "content": result_of("a\nb", depth)}
    line = _line({"n": 1, "time": 0, "kind": "message", "message": message})
    assert line.endswith(f"tool        {'[tool_result] ' * depth}a b\n")


@pytest.mark.parametrize("time", [0, 10**15, 10**18])
def test_a_time_that_no_calendar_has_is_no_fault(time: int) -> None:
    assert _line({"n": 1, "time": time, "kind": "mark", "name": "m", "data": None}).endswith("m           null\n")


def test_on_a_terminal_lines_are_cut_to_its_width_and_cuts_stand_out(agent: Agent) -> None:
    filled(agent)
    agent.say("s", "user", "x" * 500)
    shown = on_terminal(agent, "agent", "log", agent.name, size=(50, 80))
    plain = on_terminal(agent, "agent", "log", agent.name, size=(50, 80), NO_COLOR="1")
    assert "\x1b[1m     3" in shown and "\x1b" not in plain
    assert {len(line) <= 80 for line in plain.splitlines()} == {True}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("AGENT", "-s", "nothing"), 1, "no session"),
        (("AGENT", "-s", "../s"), 2, "invalid session name"),
        (("nobody",), 1, "no session"),
        (("AGENT", "--space", "nowhere"), 1, "no shared space"),
        (("AGENT", "--folow"), 2, "--folow"),
    ],
)
def test_what_is_not_there_is_said(agent: Agent, words: tuple[str, ...], code: int, said: str) -> None:
    filled(agent)
    ran = agent.run("agent", "log", *(agent.name if word == "AGENT" else word for word in words))
    assert (ran.code, ran.out) == (code, "") and said in ran.err


# following


class Following:
    """``ctx agent log -f`` as it runs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stdout is not None
        self._out = process.stdout.fileno()
        self._held = b""

    def line(self) -> str:
        """The next line; fails where none comes."""
        while b"\n" not in self._held:
            ready, _, _ = select.select([self._out], [], [], PATIENCE_S)
            assert ready, "no line came"
            chunk = os.read(self._out, 65536)
            assert chunk, "it ended"
            self._held += chunk
        line, _, self._held = self._held.partition(b"\n")
        return line.decode()


@contextmanager
def following(agent: Agent, *options: str) -> Iterator[Following]:
    command = [sys.executable, "-m", "mountctl.ctx", "agent", "log", agent.name, "-f", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=agent.mount.environment, cwd=PROJECT) as process:
        try:
            yield Following(process)
        finally:
            process.kill()


@pytest.mark.parametrize("options", [(), ("--pretty",)])
def test_following_shows_what_is_there_and_then_what_is_appended(agent: Agent, options: tuple[str, ...]) -> None:
    session = filled(agent)
    with following(agent, *options) as log:
        assert all(log.line() for _ in range(4))
        for number in range(4, 8):
            agent.say("s", "user", f"said {number}")
            assert f"said {number}" in log.line()
        (session / "state").write_text("idle\n")
        assert '"idle"' in log.line()


def test_following_waits_for_a_word_of_the_mount_and_does_not_look_again(agent: Agent) -> None:
    """POLLPRI: it would never look by itself within the time that this test has."""
    filled(agent)
    source = (PROJECT / "mountctl/ctx_agent_log.py").read_text()
    patient = source.replace("_LOOK_AGAIN_MS = 1000", "_LOOK_AGAIN_MS = 600_000")
    assert patient != source
    script = patient + (
        "\nimport argparse\nrun(argparse.Namespace(agent=AGENT, session='s', space=None, follow=True, pretty=False))\n"
    ).replace("AGENT", repr(agent.name))
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=agent.mount.environment, cwd=PROJECT) as process:
        try:
            log = Following(process)
            assert all(log.line() for _ in range(4))
            for number in range(20):
                agent.say("s", "user", f"said {number}")
                assert f"said {number}" in log.line()
        finally:
            process.kill()


def test_following_ends_when_its_reader_has_gone(agent: Agent) -> None:
    filled(agent)
    with following(agent) as log:
        log.line()
        assert log.process.stdout is not None
        log.process.stdout.close()
        assert log.process.wait(PATIENCE_S) == 0


def test_following_ends_when_the_daemon_has(fuse_device: None) -> None:
    """It must not look again and again at what the kernel remembers."""
    with running_mount() as mount:
        agent = Agent(mount, "coder")
        filled(agent)
        with following(agent) as log:
            assert all(log.line() for _ in range(4))
            mount.kill()
            assert log.process.wait(PATIENCE_S) == 69
        mount.unmount()
        mount.start()


def test_following_ends_at_an_interrupt(agent: Agent) -> None:
    filled(agent)
    with following(agent) as log:
        log.line()
        log.process.send_signal(signal.SIGINT)
        assert log.process.wait(PATIENCE_S) == 130


@pytest.mark.parametrize("options", [(), ("--pretty",)])
def test_following_ends_where_the_session_is_archived_with_its_last_line(
    agent: Agent, options: tuple[str, ...]
) -> None:
    agent.new("first")
    filled(agent)
    with following(agent, "-s", "s", *options) as log:
        assert all(log.line() for _ in range(4))
        agent.say("s", "user", "last words")
        assert agent.run("agent", "session", "archive", agent.name, "s").code == 0
        assert "last words" in log.line()
        assert log.process.wait(PATIENCE_S) == 0


def test_following_ends_though_another_session_takes_the_name_of_the_archived(agent: Agent) -> None:
    agent.new("first")
    session = filled(agent)
    with following(agent, "-s", "s") as log:
        assert all(log.line() for _ in range(4))
        assert agent.run("agent", "session", "archive", agent.name, "s").code == 0
        session.mkdir()
        agent.say("s", "user", "of another")
        assert log.process.wait(PATIENCE_S) == 0
        assert log.process.stdout is not None and b"of another" not in log.process.stdout.read()


def test_what_is_archived_when_it_is_to_be_followed_is_no_session(agent: Agent) -> None:
    agent.new("first")
    filled(agent)
    assert agent.run("agent", "session", "archive", agent.name, "s").code == 0
    with following(agent, "-s", "s") as log:
        assert log.process.wait(PATIENCE_S) == 1


def test_a_log_that_is_archived_once_it_is_open_is_followed_to_its_end(agent: Agent) -> None:
    agent.new("first")
    session = filled(agent)
    with open(session / "context/log.jsonl", "rb", buffering=0) as log:
        assert agent.run("agent", "session", "archive", agent.name, "s").code == 0
        chunks = b"".join(_followed(log.name, log.fileno()))
    assert len(chunks.splitlines()) == 4


def test_following_ends_where_the_session_is_deleted(agent: Agent) -> None:
    agent.new("first")
    session = filled(agent)
    with following(agent, "-s", "s") as log:
        assert all(log.line() for _ in range(4))
        os.setxattr(session, "user.ctx.delete", b"s")
        assert log.process.wait(PATIENCE_S) == 1


def test_lines_after_garbage_are_shown() -> None:
    """Field report 3: reading stops at the first bad line of an imported history."""
    with running_mount("jsonl") as mount:
        session = mount.path / "home/0/agent/coder/session/s"
        session.parents[1].mkdir()
        session.mkdir()
        write_once(session / "messages.jsonl", b'{"role":"user","content":"one"}\n')
        assert mount.stop() == 0
        [stored] = mount.store.rglob("s/messages.jsonl")
        with stored.open("ab") as file:
            file.write(b'garbage\n{"role":"user","content":"three"}\n')
        mount.start()
        agent = Agent(mount, "coder")
        for words in (("log", "coder", "-s", "s"), ("history", "coder", "-s", "s")):
            ran = agent.run("agent", *words)
            assert (ran.code, "three" in ran.out) == (0, True), words
