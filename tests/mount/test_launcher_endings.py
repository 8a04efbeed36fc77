"""Spec 3.6: the launcher ends all that it started, whatever ends first."""

import contextlib
import os
import select
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from ctxfs.agents import launcher as launching
from ctxfs.agents.launch import pack, socket_pair
from ctxfs.agents.processes import Agent, AgentLost
from tests.agents import script
from tests.mount.launching import ENVIRONMENT, Bench
from tests.mounting import wait_until


async def _started(bench: Bench, body: str) -> Agent:
    """An agent that has said ``ready``."""
    script(bench.root, "says", body)
    agent = await bench.launcher.prepare(bench.launch("/agents/says"))
    await agent.start(ENVIRONMENT)
    assert await agent.stdout.receive_some() == b"ready\n"
    return agent


def _is_running(marker: str) -> bool:
    """Whether a process has the marker in its command line."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
                if marker.encode() in command.split(b"\0"):
                    return True
    return False


ENDINGS: dict[str, Callable[[Agent], Awaitable[object]]] = {
    "SIGTERM": lambda agent: agent.signal(signal.SIGTERM),
    "SIGKILL": lambda agent: agent.signal(signal.SIGKILL),
    "the daemon's end": lambda agent: agent.aclose(),
}


@pytest.mark.parametrize("ending", list(ENDINGS))
def test_whatever_ends_it_all_its_processes_end(bench: Bench, ending: str) -> None:
    """Children, children of children, and those with a session of their own."""
    marker = f"9{os.getpid() % 100000}.5"
    body = (
        f"sleep {marker} & (setsid sleep {marker} &) ; (sleep {marker} & sleep {marker}) & echo ready; sleep {marker}"
    )

    async def main() -> None:
        agent = await _started(bench, body)
        assert _is_running(marker)
        await ENDINGS[ending](agent)
        with contextlib.suppress(AgentLost, trio.ClosedResourceError):
            # A shell that outlives its children by a moment says with a status above 128 what ended them.
            ended = await agent.wait()
            assert ended < 0 or ended > 128
        await agent.aclose()

    trio.run(main)
    wait_until(lambda: not _is_running(marker), "the end of all processes")


def test_what_an_agent_leaves_behind_ends_with_it(bench: Bench) -> None:
    marker = f"8{os.getpid() % 100000}.5"

    async def main() -> int:
        agent = await _started(bench, f"setsid sleep {marker} >/dev/null & echo ready; exit 3")
        status = await agent.wait()
        await agent.aclose()
        return status

    assert trio.run(main) == 3
    assert not _is_running(marker)


def test_an_agent_that_ignores_sigterm_is_killed(bench: Bench) -> None:
    async def main() -> int:
        agent = await _started(bench, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
        await agent.signal(signal.SIGTERM)
        await agent.signal(signal.SIGKILL)
        status = await agent.wait()
        await agent.aclose()
        return status

    assert trio.run(main) == -signal.SIGKILL


def test_an_agent_ends_when_the_daemon_is_gone(bench: Bench) -> None:
    """The launcher's end of the link, and each guardian's, closes with the daemon."""
    marker = f"7{os.getpid() % 100000}.5"
    script(bench.root, "says", f"echo ready; sleep {marker}")

    def daemon() -> None:
        async def main() -> None:
            agent = await bench.launcher.prepare(bench.launch("/agents/says"))
            await agent.start(ENVIRONMENT)
            await agent.stdout.receive_some()
            os.kill(os.getpid(), signal.SIGKILL)

        trio.run(main)

    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            daemon()
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    wait_until(lambda: not _is_running(marker), "the agent's end")


def launcher_with_stderr(file: Path) -> tuple[socket.socket, int]:
    own = os.dup(2)
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(descriptor, 2)
    try:
        return launching.start()
    finally:
        os.dup2(own, 2)
        for each in (own, descriptor):
            os.close(each)


@pytest.mark.parametrize("is_told", [False, True], ids=["before it is told anything", "with its reports unread"])
def test_a_guardian_whose_daemon_dies_ends_without_a_word(bench: Bench, place: Path, is_told: bool) -> None:
    script(bench.root, "says", "echo ready")
    link, pid = launcher_with_stderr(place / "stderr")
    ours, theirs = socket_pair()
    (stdin, to_guardian), (from_guardian, stdout) = os.pipe(), os.pipe()
    launching.hand_over(link, (theirs.fileno(), stdin, stdout))
    os.close(stdout)
    theirs.close()
    if is_told:
        ours.send(pack(bench.launch("/agents/says")))
        select.select([ours], [], [])
    ours.close()
    assert os.read(from_guardian, 1) == b"", "it is gone"
    link.close()
    wait_until(lambda: os.waitpid(pid, os.WNOHANG) != (0, 0), "the launcher's end")
    assert (place / "stderr").read_text() == ""
    for descriptor in (stdin, to_guardian, from_guardian):
        os.close(descriptor)
