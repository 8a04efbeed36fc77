"""A trio client of a ws-ckpt daemon, ours or another (spec 6.2): one connection a request.

Errors: those of ``backend.checkpoints.errors``; an answer of more than 64 MiB is refused before anything is allocated.
Cancelling a call closes its connection; a daemon that has read the request carries it out all the same.
"""

import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from backend.checkpoints import wire
from backend.checkpoints.bincode import WireError
from backend.checkpoints.errors import DaemonTimeout, DaemonUnavailable, ProtocolError, error_of

SOCKET_VARIABLE = "WS_CKPT_SOCKET"
TIMEOUT_S = 5.0

_CHUNK = 1 << 20
_PAUSE_S = 0.01

T = TypeVar("T")


def default_socket() -> str:
    """``$WS_CKPT_SOCKET``, or where ws-ckpt daemons listen."""
    return os.environ.get(SOCKET_VARIABLE) or wire.DEFAULT_SOCKET


class CheckpointClient:
    """Asks the daemon on a socket; times in seconds."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        timeout: float = TIMEOUT_S,
        answer_timeout: float | None = None,
    ) -> None:
        """``timeout`` bounds connecting, sending and the answer each; ``answer_timeout`` the last alone."""
        self.path = os.fspath(path) if path is not None else default_socket()
        self._timeout = timeout
        self._answer_timeout = timeout if answer_timeout is None else answer_timeout

    def is_available(self) -> bool:
        """Whether there is a socket; not whether anybody answers."""
        return os.path.exists(self.path)

    async def init(self, workspace: str) -> str:
        """The id of a workspace, registered if it was not."""
        return (await self._expect(wire.InitOk, wire.Init(workspace))).ws_id

    async def checkpoint(
        self, workspace: str, id: str, message: str | None = None, metadata: str | None = None, pin: bool = False
    ) -> wire.CheckpointOk | wire.CheckpointSkipped:
        """Takes a snapshot; ``metadata`` is JSON text. Skipped, which is no error, where there is nothing to take."""
        request = wire.Checkpoint(workspace, id, message, metadata, pin)
        answer = await self.request(request)
        if isinstance(answer, wire.CheckpointSkipped):
            return answer
        return _checked(wire.CheckpointOk, answer, request)

    create = checkpoint

    async def rollback(self, workspace: str, to: str) -> wire.RollbackOk:
        """Makes the workspace what a snapshot holds."""
        return await self._expect(wire.RollbackOk, wire.Rollback(workspace, to))

    restore = rollback

    async def delete(self, workspace: str | None, snapshot: str, force: bool = False) -> str:
        """Deletes a snapshot; its full id. A pinned one only with ``force``."""
        return (await self._expect(wire.DeleteOk, wire.Delete(workspace, snapshot, force))).target

    async def list(self, workspace: str | None = None) -> tuple[wire.SnapshotEntry, ...]:
        """The snapshots of a workspace, or of all, oldest first."""
        return (await self._expect(wire.ListOk, wire.List(workspace))).snapshots

    async def diff(self, workspace: str, from_: str, to: str) -> tuple[wire.DiffEntry, ...]:
        """What changed between two snapshots."""
        return (await self._expect(wire.DiffOk, wire.Diff(workspace, from_, to))).changes

    async def status(self, workspace: str | None = None) -> wire.StatusReport:
        """The daemon, and one workspace or all."""
        return (await self._expect(wire.StatusOk, wire.Status(workspace))).report

    async def cleanup(self, workspace: str, keep: int | None = None) -> tuple[str, ...]:
        """Deletes the oldest snapshots but for ``keep`` and the pinned ones; the ids, oldest first."""
        return (await self._expect(wire.CleanupOk, wire.Cleanup(workspace, keep))).removed

    async def config(self) -> wire.ConfigReport:
        """The running configuration."""
        return (await self._expect(wire.ConfigOk, wire.Config())).config

    async def reload_config(self) -> None:
        """Makes the daemon read its configuration file again."""
        await self._expect(wire.ReloadConfigOk, wire.ReloadConfig())

    async def recover(self, workspace: str) -> str:
        """Makes a workspace an ordinary directory and deletes its snapshots; its path."""
        return (await self._expect(wire.RecoverOk, wire.Recover(workspace))).workspace

    async def health_advisory(self) -> wire.HealthAdvisoryOk:
        """How full things are."""
        return await self._expect(wire.HealthAdvisoryOk, wire.HealthAdvisory())

    async def request(self, request: wire.Request) -> wire.Response:
        """What the daemon answers, an ``Error`` as its exception."""
        sent = wire.frame(wire.encode_request(request))
        async with self._connected() as stream:
            async with _limited("take the request", self._timeout):
                await _send(stream, sent)
            async with _limited("answer", self._answer_timeout):
                answer = await _receive(stream)
        if isinstance(answer, wire.Error):
            raise error_of(answer)
        return answer

    async def _expect(self, kind: type[T], request: wire.Request) -> T:
        return _checked(kind, await self.request(request), request)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[trio.SocketStream]:
        if not self.is_available():
            raise DaemonUnavailable(f"no checkpoint daemon runs at {self.path}: start `mountctl checkpointd`")
        try:
            async with _limited("accept the connection", self._timeout):
                stream = await _connection_to(self.path)
        except OSError as error:
            raise DaemonUnavailable(f"no checkpoint daemon answers at {self.path}: {_reason(error)}") from error
        async with stream:
            yield stream


async def _connection_to(path: str) -> trio.SocketStream:
    """A connection (``OSError``). Where too many wait already, the kernel has no event for a place becoming free."""
    while True:
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connecting.setblocking(False)
            connecting.connect(path)
        except BlockingIOError:
            connecting.close()
            await trio.sleep(_PAUSE_S)
        except BaseException:
            connecting.close()
            raise
        else:
            return trio.SocketStream(trio.socket.from_stdlib_socket(connecting))


def _checked(kind: type[T], answer: wire.Response, request: wire.Request) -> T:
    if not isinstance(answer, kind):
        raise ProtocolError(f"the daemon answered a {type(request).__name__} with a {type(answer).__name__}")
    return answer


@asynccontextmanager
async def _limited(what: str, seconds: float) -> AsyncIterator[None]:
    try:
        with trio.fail_after(seconds):
            yield
    except trio.TooSlowError:
        raise DaemonTimeout(f"the checkpoint daemon did not {what} within {seconds:g} s") from None


async def _send(stream: trio.SocketStream, data: bytes) -> None:
    """A daemon may answer and close before it has read all: then the answer says why."""
    try:
        await stream.send_all(data)
    except trio.BrokenResourceError:
        return


async def _receive(stream: trio.SocketStream) -> wire.Response:
    try:
        header = await _up_to(stream, wire.HEADER_BYTES)
        if not header:
            raise DaemonUnavailable("the checkpoint daemon closed the connection without an answer")
        length = wire.payload_length(header, wire.MAX_ANSWER_ACCEPTED)
        payload = await _up_to(stream, length)
        if len(header) < wire.HEADER_BYTES or len(payload) < length:
            raise ProtocolError("the daemon's answer ends in the middle")
        return wire.decode_response(payload)
    except WireError as error:
        raise ProtocolError(f"the daemon's answer is none: {error}") from error
    except trio.BrokenResourceError as error:
        raise DaemonUnavailable("the checkpoint daemon broke the connection off") from error


async def _up_to(stream: trio.SocketStream, count: int) -> bytes:
    """``count`` bytes, or what there is until the end."""
    data = bytearray()
    while len(data) < count and (chunk := await stream.receive_some(min(count - len(data), _CHUNK))):
        data += chunk
    return bytes(data)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno or errno.EIO)
