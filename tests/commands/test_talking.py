"""``ctx agent send``, ``chat``, ``resume``, ``cancel`` (spec 4.2): talking with agents from a shell."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxfs.agents.requests import MAX_INPUT
from tests.commands.running import Ran, ctx
from tests.mounting import PATIENCE_S, PROJECT, RunningMount, running_mount, wait_until
from tests.people import ROOT
from tests.socket.workshop import SAYS_HI, Bot, Workshop

SLOW = 'read -r line\necho \'{"type":"delta","text":"so far"}\'\nsleep 60\n'


@pytest.fixture(scope="module")
def workshop(fuse_device: None) -> Iterator[Workshop]:
    with running_mount() as mount:
        yield Workshop(mount)


def run(mount: RunningMount, *arguments: str, stdin: str = "") -> Ran:
    """A command as root, with what is typed."""
    done = subprocess.run(
        [sys.executable, "-m", "mountctl.ctx", "agent", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=PROJECT,
        env=mount.environment,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def roots(bot: Bot, name: str = "default") -> Path:
    return bot.mount.path / f"home/0/agent/{bot.name}/session/{name}"


def test_a_reply_is_printed(workshop: Workshop) -> None:
    bot = workshop.bot()
    assert run(workshop.mount, "send", bot.name, "hello") == (0, "hi\n", "")
    assert run(workshop.mount, "send", "echo", "two\nlines") == (0, "two\nlines\n", "")
    assert run(workshop.mount, "send", "echo", "-", stdin="from stdin\n") == (0, "from stdin\n", "")
    assert run(workshop.mount, "send", "echo", stdin="from stdin\n") == (0, "from stdin\n", "")


def test_an_agent_that_is_missing_is_told_from_a_mount_without_sockets(workshop: Workshop, tmp_path: Path) -> None:
    assert run(workshop.mount, "send", "nobody", "hello").err == (
        f"ctx: {workshop.mount.path}/agent/nobody.sock is not there: an admin defines agents, `mountctl agent add`\n"
    )
    for part in ("status", "home"):
        (tmp_path / part).symlink_to(workshop.mount.path / part)
    bare = ctx("agent", "send", "echo", "hello", environment=workshop.mount.environment | {"CTX_ROOT": str(tmp_path)})
    assert bare.code == 1
    assert "no sockets" in bare.err and "log says why" in bare.err


STREAMS = """read -r line
text=$(head -c 100000 /dev/zero | tr '\\0' x)
for number in 1 2 3 4 5 6 7 8 9 10 11 12; do
    printf '{"type":"delta","text":"%s"}\\n' $text
done
"""


def test_a_long_reply_is_printed_once_though_it_becomes_several_messages(workshop: Workshop) -> None:
    bot = workshop.bot(STREAMS)
    ran = run(workshop.mount, "send", bot.name, "x")
    assert (ran.code, len(ran.out), ran.err) == (0, 1_200_001, "")
    assert (roots(bot) / "messages.jsonl").read_text().count('"assistant"') > 1


def test_it_goes_to_the_current_session_unless_told(workshop: Workshop) -> None:
    bot = workshop.bot()
    run(workshop.mount, "send", bot.name, "one", "-s", "work", "--cwd", "/work")
    run(workshop.mount, "send", bot.name, "two")
    messages = (roots(bot, "work") / "messages.jsonl").read_text()
    assert messages.count('"role":"user"') == 2
    assert json.loads((roots(bot, "work") / "meta.json").read_text())["client"] == "ctx"
    assert not roots(bot).exists()


def test_a_retry_is_not_run_again_and_shows_what_is_recorded(workshop: Workshop) -> None:
    bot = workshop.bot("echo run >> /tmp/count-$CTX_AGENT\n" + SAYS_HI)
    for _ in range(2):
        assert run(workshop.mount, "send", bot.name, "x", "--id", "c1") == (0, "hi\n", "")
        run(workshop.mount, "send", bot.name, "another")
    assert (workshop.root / f"tmp/count-{bot.name}").read_text() == "run\n" * 3
    refused = run(workshop.mount, "send", bot.name, "y", "--id", "c1")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("ctx: this id was used")


def test_tool_calls_are_told_beside_the_reply(workshop: Workshop) -> None:
    call = '{"type":"tool_call","id":"1","name":"fs.read","arguments":{}}'
    bot = workshop.bot(f"read -r line\necho '{call}'\n" + SAYS_HI.split("\n", 1)[1])
    assert run(workshop.mount, "send", bot.name, "x") == (0, "hi\n", "[fs.read]\n")


FAILURES: dict[str, tuple[list[str], int, str]] = {
    "no such agent": (["send", "nobody", "x"], 1, "mountctl agent add"),
    "no name of an agent": (["send", "a/b", "x"], 2, "invalid agent name"),
    "neither an agent nor a model": (["send", ":echo", "x"], 2, "invalid agent name"),
    "a model without a provider": (["send", "model:m", "x"], 2, "model:PROVIDER/MODEL"),
    "a cwd that is missing": (["send", "echo", "x", "--cwd", "/nowhere", "-s", "f"], 1, "/nowhere"),
    "a cwd of the host": (["send", "echo", "x", "--cwd", "/etc", "-s", "f"], 13, "/etc"),
    "a cwd that can be none": (["send", "echo", "x", "--cwd", "a/b"], 2, "a/b"),
    "an id that can be none": (["send", "echo", "x", "--id", "a b"], 2, "a b"),
    "no id": (["send", "echo", "x", "--id", ""], 2, "--id"),
    "shared with nobody": (["send", "echo", "x", "--scope", "shared"], 2, "--space"),
    "temp in a space": (["send", "echo", "x", "--scope", "temp", "--space", "none"], 2, "--space"),
    "no space": (["send", "echo", "x", "--space", "none"], 1, "none"),
    "another scope": (["send", "echo", "x", "--scope", "mine"], 2, "--scope"),
    "nothing to cancel": (["cancel", "echo", "c9"], 1, "nothing active"),
    "nothing to resume": (["resume", "echo", "-s", "none"], 1, "none"),
    "an unknown cursor": (["resume", "echo", "-s", "cursor", "--after", "zzz"], 1, "zzz"),
}


@pytest.mark.parametrize("what", FAILURES)
def test_what_fails_says_why(workshop: Workshop, what: str) -> None:
    arguments, code, said = FAILURES[what]
    run(workshop.mount, "send", "echo", "x", "-s", "cursor")
    ran = run(workshop.mount, *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("ctx: ")
    assert said in ran.err or what == "an unknown cursor"
    assert ran.err.count("\n") == 1


def test_a_run_that_fails_is_a_failure(workshop: Workshop) -> None:
    bot = workshop.bot('echo \'{"type":"delta","text":"so far"}\'\nexit 3\n')
    assert run(workshop.mount, "send", bot.name, "x") == (1, "so far\n", "ctx: the agent exited with status 3\n")


def test_a_failed_run_names_the_file_with_its_stderr_and_a_retry_says_it_again(workshop: Workshop) -> None:
    bot = workshop.bot("echo 'no such luck' >&2\nexit 3\n")
    ran = run(workshop.mount, "send", bot.name, "x", "--id", "c1")
    assert run(workshop.mount, "send", bot.name, "x", "--id", "c1") == ran
    assert (ran.code, ran.out) == (1, "")
    said = ran.err.removeprefix("ctx: the agent exited with status 3 (its stderr: ").removesuffix(")\n")
    assert Path(said).read_text() == "no such luck\n"


@pytest.mark.parametrize("options", [["--id", "{id}"], ["-s", "{id}", "--queue"], ["--scope", "temp"]])
@pytest.mark.parametrize("text", ["hello", "-5 degrees", "-"])
def test_options_may_stand_before_the_message(workshop: Workshop, options: list[str], text: str) -> None:
    known = [option.format(id=f"before{len(text)}") for option in options]
    ran = run(workshop.mount, "send", "echo", *known, text, stdin="hello")
    assert ran == (0, "hello\n" if text == "-" else f"{text}\n", "")


NO_MESSAGES = {
    "bytes that are no text": (b"good until \xff here", "UTF-8"),
    "half a character": ("ü".encode()[:1], "UTF-8"),
    "more than 256 KiB": (b"x" * (MAX_INPUT + 1), "256 KiB"),
    "more than a frame": (b"x" * (1 << 21), "256 KiB"),
    "a NUL": (b"a\0b", "NUL"),
}


@pytest.mark.parametrize("what", NO_MESSAGES)
@pytest.mark.parametrize("command", ["send", "chat"])
def test_what_is_no_message_is_refused_by_what_is_wrong_with_it(workshop: Workshop, command: str, what: str) -> None:
    raw, said = NO_MESSAGES[what]
    done = subprocess.run(
        [sys.executable, "-m", "mountctl.ctx", "agent", command, "echo", "-s", "none"],
        input=raw,
        capture_output=True,
        cwd=PROJECT,
        env=workshop.mount.environment,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"ctx: ")
    assert said.encode() in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert not (workshop.mount.path / "home/0/agent/echo/session/none").exists()


def started(bot: Bot, *arguments: str) -> "subprocess.Popen[str]":
    """A command that prints ``so far`` and goes on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mountctl.ctx", "agent", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
        env=bot.mount.environment,
    )
    assert process.stdout is not None
    assert process.stdout.read(6) == "so far"
    return process


def test_the_first_interrupt_cancels_the_run(workshop: Workshop) -> None:
    bot = workshop.bot(SLOW)
    process = started(bot, "send", bot.name, "x")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (130, "\n")
    assert err.splitlines()[-1] == "ctx: cancelled"
    assert (roots(bot) / "state").read_text() == "done\n"


def test_the_second_interrupt_leaves(workshop: Workshop) -> None:
    bot = workshop.bot(SLOW.replace("sleep 60", "trap '' TERM; while :; do sleep 0.05; done"))
    process = started(bot, "send", bot.name, "x")
    os.kill(workshop.mount.pid, signal.SIGSTOP)
    try:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "again to leave" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    finally:
        os.kill(workshop.mount.pid, signal.SIGCONT)
    process.communicate(timeout=PATIENCE_S)
    wait_until(lambda: (roots(bot) / "state").read_text() == "done\n", "the end of the run")


def test_another_command_cancels_it(workshop: Workshop) -> None:
    bot = workshop.bot(SLOW)
    process = started(bot, "send", bot.name, "x", "--id", "c1")
    cancelled = run(workshop.mount, "cancel", bot.name, "c1")
    assert cancelled.code == 0
    assert cancelled.out.startswith("cancelled ctx-")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130


def test_a_chat_is_a_send_a_line(workshop: Workshop) -> None:
    ran = run(workshop.mount, "chat", "echo", "-s", "talk", stdin="one\n\ntwo\n")
    assert ran == (0, "one\ntwo\n", "")
    session = workshop.mount.path / "home/0/agent/echo/session/talk"
    starts = [json.loads(line) for line in (session / "events.jsonl").read_text().splitlines() if '"start"' in line]
    assert len({start["client_id"] for start in starts}) == 2


def test_a_chat_goes_on_after_a_failure(workshop: Workshop) -> None:
    bot = workshop.bot("read -r line\ncase $line in *bad*) exit 1;; esac\n" + SAYS_HI.split("\n", 1)[1])
    ran = run(workshop.mount, "chat", bot.name, stdin="this is bad\ngood\n")
    assert ran.code == 1
    assert "hi\n" in ran.out or ran.out == ""


def test_resume_prints_frames(workshop: Workshop) -> None:
    run(workshop.mount, "send", "echo", "x", "-s", "resumed")
    ran = run(workshop.mount, "resume", "echo", "-s", "resumed")
    frames: list[dict[str, Any]] = [json.loads(line) for line in ran.out.splitlines()]
    assert [frame["type"] for frame in frames] == ["message", "start", "state", "message", "done", "state"]
    later = run(workshop.mount, "resume", "echo", "-s", "resumed", "--after", frames[1]["id"])
    assert later.out == "".join(f"{line}\n" for line in ran.out.splitlines()[2:])


def test_a_temp_send_is_kept_nowhere(workshop: Workshop) -> None:
    bot = workshop.bot()
    assert run(workshop.mount, "send", bot.name, "x", "--scope", "temp") == (0, "hi\n", "")
    assert not roots(bot).parent.exists()


def test_a_model_is_talked_to_as_an_agent_is(workshop: Workshop) -> None:
    model = workshop.model()
    assert run(workshop.mount, "send", f"model:acme/{model.name}", "x") == (0, "hi\n", "")


WRAPPED: dict[str, tuple[list[str], str, str]] = {
    "counts words": (["wc", "-w"], "how many words are these", "5\n"),
    "says all of a long message": (["cat"], "0123456789" * 20_000, "0123456789" * 20_000 + "\n"),
    "does not read it": (["echo", "hi"], "x" * 200_000, "hi\n"),
    "prints what is no text": (
        ["printf", "a\\0b\\377c"],
        "x",
        "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c\n",
    ),
}


@pytest.fixture(scope="module")
def wrapper(workshop: Workshop) -> str:
    """The example of the docs as it stands, but for where its interpreter is."""
    source = (PROJECT / "docs/agents.md").read_text().split("```python\n", 1)[1].split("```", 1)[0]
    file = workshop.mount.base / "wrap"
    file.write_text(source.replace("/usr/bin/env python3", sys.executable))
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize("what", WRAPPED)
def test_the_wrapper_of_the_docs_makes_an_agent_of_a_program_that(workshop: Workshop, wrapper: str, what: str) -> None:
    argv, message, reply = WRAPPED[what]
    bot = Bot(workshop.mount, workshop.root, f"wrapped-{what.replace(' ', '-')}")
    bot.definition.mkdir()
    bot.define(root="/", exec=json.dumps([wrapper, *argv]))
    assert run(workshop.mount, "send", bot.name, stdin=message) == (0, reply, "")
    assert bot.send(message, person=ROOT)[-1]["status"] == "ok"


@pytest.mark.parametrize("words", [["send", "echo", "x"], ["resume", "echo", "-s", "s"], ["cancel", "echo", "c1"]])
def test_nothing_is_sent_home_in_place_of_another_home(workshop: Workshop, words: list[str]) -> None:
    environment = {**workshop.mount.environment, "CTX_HOME": f"{workshop.mount.path}/home/1001"}
    ran = ctx("agent", *words, environment=environment)
    assert (ran.code, ran.out) == (69, "")
    assert "CTX_HOME" in ran.err


@pytest.mark.parametrize("spelt", ["{home}", "{home}/", "{root}/../ctx/home/0", "{link}", "{link}/"])
def test_a_home_is_the_senders_however_it_is_spelt(workshop: Workshop, tmp_path: Path, spelt: str) -> None:
    root, link = workshop.mount.path, tmp_path / "mine"
    link.symlink_to(root / "home/0")
    home = spelt.format(home=f"{root}/home/0", root=root, link=link)
    environment = {**workshop.mount.environment, "CTX_HOME": home}
    assert ctx("agent", "send", "echo", "x", "-s", "spelt", environment=environment) == (0, "x\n", "")
    assert ctx("agent", "output", "echo", "-s", "spelt", environment=environment) == (0, "x\n", "")
    assert json.loads(ctx("status", "--json", environment=environment).out)["version"] is not None


def test_without_a_mount_it_says_so() -> None:
    ran = ctx("agent", "send", "echo", "x", environment={"CTX_ROOT": "/nowhere", "PATH": "/usr/bin:/bin"})
    assert ran.code == 69
    assert "no ctxfs at /nowhere" in ran.err
