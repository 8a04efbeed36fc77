"""The daemon's side of its control socket, on trio in the main thread; ``ctxfs.control`` says the protocol."""

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
    except (CtxError, TimeoutError) as error:
        return {"error": str(error) or "timed out"}
