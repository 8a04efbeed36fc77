"""The daemon's side of the launcher, on trio: an agent is prepared, started, spoken with, signalled, waited for.

Every process of a run is the guardian's affair (``ctxfs.agents.guardian``); closing an ``Agent`` ends them all.
"""

import contextlib
import errno
import os
import signal
import socket
from collections.abc import Mapping

import trio

from ctxfs.agents import launcher
from ctxfs.agents.launch import (
    MAX_PACKET,
    ExecFailed,
    Exited,
    Gathered,
    Go,
    Launch,
    Prepared,
    Refused,
    Report,
    Signal,
    pack,
    socket_pair,
    unpack,
)


class AgentLost(OSError):
    """The agent's guardian, or the launcher, is gone (``EIO``)."""


class Agent:
    """One agent, from ``Launcher.prepare`` to ``aclose``. ``snapshots``: what was gathered, by name.

    ``ctx``: CTX_ROOT in its view. ``stdin`` and ``stdout`` are its pipes.
    """

    def __init__(self, control: socket.socket, stdin: int, stdout: int) -> None:
        self._control = trio.socket.from_stdlib_socket(control)
        self.stdin = trio.lowlevel.FdStream(stdin)
        self.stdout = trio.lowlevel.FdStream(stdout)
        self.snapshots: dict[str, bytes] = {}
        self.ctx = ""

    async def prepare(self, launch: Launch) -> None:
        """Returns when it could start (``OSError``: why not)."""
        await self._send(pack(launch))
        while not isinstance(report := await self._report(), Prepared):
            match report:
                case Gathered(name, piece):
                    self.snapshots[name] = self.snapshots.get(name, b"") + piece
                case Refused(number, message):
                    raise OSError(number, message)
        self.ctx = report.root

    async def start(self, environment: Mapping[str, str]) -> None:
        """Lets it run."""
        await self._send(pack(Go(dict(environment))))

    async def signal(self, number: signal.Signals) -> None:
        """To its process group; SIGKILL to all that it started. Nothing, if it is gone."""
        try:
            await self._send(pack(Signal(number)))
        except AgentLost:
            return

    async def wait(self) -> int:
        """Its exit code, or minus the signal that ended it (``OSError``: it could not be executed)."""
        match await self._report():
            case Exited(status):
                return status
            case ExecFailed(number):
                raise OSError(number, f"the agent's executable could not be started: {os.strerror(number)}")
        raise AgentLost(errno.EIO, "the agent's guardian spoke out of turn")

    async def aclose(self) -> None:
        """Ends it with all its processes, soon; what it has not been asked for is lost."""
        self._control.close()
        await trio.aclose_forcefully(self.stdin)
        await trio.aclose_forcefully(self.stdout)

    async def _send(self, packet: bytes) -> None:
        try:
            await self._control.send(packet)
        except OSError as error:
            raise AgentLost(errno.EIO, "the agent's guardian is gone") from error

    async def _report(self) -> Report:
        try:
            packet = await self._control.recv(MAX_PACKET)
        except OSError:
            packet = b""
        if not packet:
            raise AgentLost(errno.EIO, "the agent's guardian is gone, see the daemon's log")
        report: Report = unpack(packet, Report)
        return report


class Launcher:
    """``link``: what ``ctxfs.agents.launcher.start`` returned."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def watch(self, minor: int) -> None:
        """Has the FUSE connection of this number ended should this process be killed."""
        launcher.watch(self._link, minor)

    async def prepare(self, launch: Launch) -> Agent:
        """An agent that is ready to start; its reports have been read (``OSError``: why it cannot)."""
        agent = self._hand_over()
        try:
            await agent.prepare(launch)
        except BaseException:
            await agent.aclose()
            raise
        return agent

    def _hand_over(self) -> Agent:
        with contextlib.ExitStack() as kept, contextlib.ExitStack() as given:
            ours, theirs = socket_pair()
            kept.callback(ours.close)
            given.callback(theirs.close)
            stdin, to_agent = _pipe(given, kept)
            from_agent, stdout = _pipe(kept, given)
            try:
                launcher.hand_over(self._link, (theirs.fileno(), stdin, stdout))
            except OSError as error:
                raise AgentLost(errno.EIO, "the launcher is gone: mount again") from error
            agent = Agent(ours, to_agent, from_agent)
            kept.pop_all()
            return agent


def _pipe(readers: contextlib.ExitStack, writers: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe whose ends are closed with these."""
    reader, writer = os.pipe()
    readers.callback(os.close, reader)
    writers.callback(os.close, writer)
    return reader, writer
