"""Commands whose caller has closed some of stdin, stdout and stderr, as daemons do: they work all the same (spec 4)."""

import itertools
import subprocess
import sys

import pytest

from tests.commands.conftest import Agent, Place
from tests.mounting import PROJECT

CLOSINGS = [" ".join(some) for count in (1, 2, 3) for some in itertools.combinations(("<&-", ">&-", "2>&-"), count)]
COMMANDS = ["agent session list AGENT", "agent send echo -s AGENT", "agent session new AGENT n --cwd /tmp", "search x"]


def closed(module: str, words: str, closing: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A command that a shell has started with those redirections."""
    command = f"exec {sys.executable} -m {module} {words} {closing}"
    return subprocess.run(
        ["sh", "-c", command],
        env=environment,
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("closing", CLOSINGS)
def test_a_command_works_without_what_was_closed(agent: Agent, closing: str) -> None:
    agent.new("s")
    for words in COMMANDS:
        ran = closed("mountctl.ctx", words.replace("AGENT", agent.name), closing, agent.mount.environment)
        assert (ran.returncode, ran.stderr) == (0, ""), words
        assert (ran.stdout == "") == (">&-" in closing.split() or "send" in words or "search" in words), words
    assert (agent.directory / "n/cwd").read_text() == "/tmp\n"


@pytest.mark.parametrize("closing", CLOSINGS)
def test_a_refusal_keeps_its_exit_code_and_goes_nowhere_else(agent: Agent, closing: str) -> None:
    agent.new("s")
    ran = closed("mountctl.ctx", f"agent history {agent.name} -s nothing", closing, agent.mount.environment)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ("no session" in ran.stderr) == ("2>&-" not in closing)


@pytest.mark.parametrize("closing", CLOSINGS)
def test_a_mount_needs_none_of_them(place: Place, closing: str) -> None:
    words = f"mount {place.mountpoint} --store {place.store}"
    ran = closed("mountctl.main", words, closing, place.environment)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert (place.mountpoint / "status").read_text().startswith("state=ok\n")
    assert place.umount() == (0, "", "")
