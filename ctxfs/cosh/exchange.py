"""One request to a process, one answer, one deadline over all of it (spec 5.1). Knows nothing of what is said.

The process leads its own group. Whatever goes wrong, the group is ended and its leader reaped before this returns, and
then only what can be read at once is read: a descendant that left the group with the pipes in its hands delays nobody.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from typing import NamedTuple, cast

import trio

MAX_STDOUT = 1 << 20
MAX_STDERR = 256 << 10

_CHUNK = 64 << 10
_GRACE_S = 0.2


class ExchangeFailed(Exception):
    """The process gave no answer, in words for people."""


class Answer(NamedTuple):
    """What a process that ended by itself wrote, and its exit code (negative: the signal)."""

    stdout: bytes
    stderr: bytes
    code: int


class _Output:
    """One pipe of the process, and what came out of it."""

    def __init__(self, name: str, stream: trio.abc.ReceiveStream, limit: int) -> None:
        self.data = bytearray()
        self._stream = cast(trio.lowlevel.FdStream, stream)
        self._name = name
        self._limit = limit

    @property
    def fault(self) -> str | None:
        """Why there must be no more of it."""
        if len(self.data) <= self._limit:
            return None
        return f"it wrote more than {self._limit} bytes to its {self._name}"

    async def collect(self) -> None:
        """Reads until the end, or beyond the limit."""
        while self.fault is None and (chunk := await self._stream.receive_some(_CHUNK)):
            self.data += chunk

    def drain(self) -> None:
        """Reads what is there already."""
        try:
            while self.fault is None and (chunk := os.read(self._stream.fileno(), _CHUNK)):
                self.data += chunk
        except BlockingIOError:
            return

    async def close(self) -> None:
        await self._stream.aclose()


async def exchange(argv: Sequence[str], request: bytes, deadline: float) -> Answer:
    """Runs ``argv`` with ``request`` as its stdin (``ExchangeFailed``); ``deadline`` in seconds."""
    with trio.move_on_after(deadline) as scope:
        try:
            process = await trio.lowlevel.open_process(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except (OSError, ValueError) as error:
            raise ExchangeFailed(f"{argv[0]} cannot be started: {error}") from error
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        out = _Output("stdout", process.stdout, MAX_STDOUT)
        err = _Output("stderr", process.stderr, MAX_STDERR)
        try:
            await _converse(process, request, out, err)
        finally:
            with trio.CancelScope(shield=True):
                await _end(process)
                out.drain()
                err.drain()
                await out.close()
                await err.close()
    if scope.cancelled_caught:
        raise ExchangeFailed(f"{argv[0]} gave no answer within {deadline:g} s")
    if fault := out.fault or err.fault:
        raise ExchangeFailed(f"{argv[0]}: {fault}")
    return Answer(bytes(out.data), bytes(err.data), cast(int, process.returncode))


async def _converse(process: trio.Process, request: bytes, *outputs: _Output) -> None:
    """Until the process ended, or there is too much of what it writes."""
    async with trio.open_nursery() as nursery:

        async def collect(output: _Output) -> None:
            await output.collect()
            if output.fault is not None:
                nursery.cancel_scope.cancel()

        nursery.start_soon(_send, process, request)
        for output in outputs:
            nursery.start_soon(collect, output)
        await _exited(process)
        nursery.cancel_scope.cancel()


async def _send(process: trio.Process, request: bytes) -> None:
    """A process may answer before it has read all."""
    assert process.stdin is not None
    try:
        await process.stdin.send_all(request)
        await process.stdin.aclose()
    except trio.BrokenResourceError:
        return


async def _exited(process: trio.Process) -> None:
    """Waits for the end of the leader without reaping it: until then nobody else's group can have its number."""
    descriptor = os.pidfd_open(process.pid)
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        trio.lowlevel.notify_closing(descriptor)
        os.close(descriptor)


async def _end(process: trio.Process) -> None:
    assert process.stdin is not None
    await process.stdin.aclose()
    os.killpg(process.pid, signal.SIGTERM)
    with trio.move_on_after(_GRACE_S):
        await _exited(process)
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
