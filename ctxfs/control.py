"""The daemon's control socket: one JSON object a line, for the admin commands (spec 4.6).

Server side for trio (the daemon's main thread), client side for commands, which never wait longer than they say.
Operations: ``status`` → the daemon's figures, ``sync`` → after everything committed is on disk, ``stop`` → the daemon
unmounts and ends. An answer is the value, or ``{"error": text}``.
"""

import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import trio

from backend.errors import CtxError

Handler = Callable[[], Awaitable[Mapping[str, Any]]]

MAX_REQUEST_BYTES = 4096
_MAX_ANSWER_BYTES = 1 << 20


class ControlError(CtxError):
    """The daemon did not answer, or answered with an error."""

    exit_code = 69


def listen(path: Path) -> trio.SocketListener:
    """A 0600 listening socket in place of whatever an earlier daemon left (``OSError``)."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen()
    return trio.SocketListener(trio.socket.from_stdlib_socket(listener))


async def serve(listener: trio.SocketListener, handlers: Mapping[str, Handler]) -> None:
    """Answers requests until cancelled; a client that misbehaves ends only its own connection."""

    async def one_client(stream: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            async for line in _lines(stream):
                await stream.send_all(msgspec.json.encode(await _answer(line, handlers)) + b"\n")

    await trio.serve_listeners(one_client, [listener])


async def _lines(stream: trio.SocketStream) -> Any:
    buffer = b""
    async for chunk in stream:
        buffer += chunk
        while (end := buffer.find(b"\n")) >= 0:
            yield buffer[:end]
            buffer = buffer[end + 1 :]
        if len(buffer) > MAX_REQUEST_BYTES:
            return


async def _answer(line: bytes, handlers: Mapping[str, Handler]) -> Mapping[str, Any]:
    try:
        operation = msgspec.json.decode(line, type=dict[str, Any]).get("op")
    except msgspec.DecodeError:
        return {"error": "not a JSON object"}
    handler = handlers.get(operation) if isinstance(operation, str) else None
    if handler is None:
        return {"error": f"unknown op {operation!r}"}
    try:
        return await handler()
    except CtxError as error:
        return {"error": str(error)}


def ask(path: Path, operation: str, timeout_s: float) -> dict[str, Any]:
    """The daemon's answer to one operation (``ControlError``: none within the time, or an error)."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(timeout_s)
            client.connect(str(path))
            client.sendall(msgspec.json.encode({"op": operation}) + b"\n")
            with client.makefile("rb") as file:
                answer = msgspec.json.decode(file.readline(_MAX_ANSWER_BYTES), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise ControlError(f"no answer from the daemon to {operation!r}: {error}") from error
    if "error" in answer:
        raise ControlError(f"the daemon refused {operation!r}: {answer['error']}")
    return answer
