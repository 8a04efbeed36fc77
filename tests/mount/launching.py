"""A launcher without its daemon, and a root for agents."""

import errno
import socket
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from ctxfs.agents.launch import Identity, Launch, View
from ctxfs.agents.mount_table import parse_table
from ctxfs.agents.processes import Launcher
from tests.agents import TABLE, script
from tests.mounting import RunningMount
from tests.people import ALICE

T = TypeVar("T")
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
IDENTITY = Identity(ALICE.uid, ALICE.gid, (4242, 4243))


class Bench:
    """A launcher, and a root for its agents."""

    def __init__(self, link: socket.socket, pid: int, mount: RunningMount, root: Path) -> None:
        self.link = link
        self.pid = pid
        self.mount = mount
        self.root = root
        self.launcher = Launcher(link)

    def view(self, root: str | None = "", rows: str = TABLE, *, own: bool = False) -> View:
        return View(str(self.root) if root == "" else root, str(self.mount.path), tuple(parse_table(rows)), own)

    def launch(self, *argv: str, cwd: str = "/", view: View | None = None, log: str | None = None) -> Launch:
        return Launch(IDENTITY, view or self.view(), cwd, argv, ENVIRONMENT["PATH"], "/", log)

    def says(self, body: str, *, cwd: str = "/", view: View | None = None, stdin: bytes = b"") -> str:
        """What a shell script prints when it is run as an agent; it must exit 0."""
        script(self.root, "says", body)
        status, output = trio.run(run_agent, self.launcher, self.launch("/agents/says", cwd=cwd, view=view), stdin)
        assert status == 0, output
        return output.decode()

    def refusal(self, launch: Launch) -> str:
        """With which errno a launch is refused."""
        with pytest.raises(OSError) as refused:
            trio.run(run_agent, self.launcher, launch, b"")
        assert refused.value.errno is not None
        return errno.errorcode[refused.value.errno]


async def run_agent(launcher: Launcher, launch: Launch, stdin: bytes) -> tuple[int, bytes]:
    agent = await launcher.prepare(launch)
    try:
        await agent.start(ENVIRONMENT)
        await agent.stdin.send_all(stdin)
        await agent.stdin.aclose()
        output = b"".join([data async for data in agent.stdout])
        return await agent.wait(), output
    finally:
        await agent.aclose()
