"""The daemon's side of its control socket, on trio in the main thread; ``ctxfs.control`` says the protocol.

Nothing that a client sends and nothing that a handler raises ends more than that client's question or connection.
"""

import contextlib
import logging
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import trio

from backend.errors import CtxError

Handler = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Gets the whole request."""

MAX_REQUEST_BYTES = 4096

log = logging.getLogger("ctxfs.control")


def listen(path: Path) -> trio.SocketListener:
    """A 0600 listening socket in place of whatever an earlier daemon left (``OSError``)."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # What it is bound to gets its mode. A umask would be that of all threads, the FUSE thread's files among them.
    os.fchmod(listener.fileno(), 0o600)
    listener.bind(str(path))
    listener.listen()
    return trio.SocketListener(trio.socket.from_stdlib_socket(listener))


async def serve(listener: trio.SocketListener, handlers: Mapping[str, Handler]) -> None:
    """Answers requests until cancelled; a client that misbehaves ends only its own connection."""

    async def one_client(stream: trio.SocketStream) -> None:
        try:
            async with contextlib.aclosing(_lines(stream)) as lines:
                async for line in lines:
                    await stream.send_all(await _answer(line, handlers) + b"\n")
        except trio.BrokenResourceError:
            return
        except Exception:
            log.exception("a connection to the control socket failed")

    await trio.serve_listeners(one_client, [listener])


async def _lines(stream: trio.SocketStream) -> AsyncGenerator[bytes, None]:
    buffer = b""
    async for chunk in stream:
        buffer += chunk
        while (end := buffer.find(b"\n")) >= 0:
            yield buffer[:end]
            buffer = buffer[end + 1 :]
        if len(buffer) > MAX_REQUEST_BYTES:
            return


async def _answer(line: bytes, handlers: Mapping[str, Handler]) -> bytes:
    try:
        return msgspec.json.encode(await _answered(line, handlers))
    except (CtxError, OSError) as error:
        return _error(str(error) or "timed out")
    except Exception as error:
        log.exception("internal error in an answer")
        return _error(f"internal error: {type(error).__name__}")


async def _answered(line: bytes, handlers: Mapping[str, Handler]) -> Mapping[str, Any]:
    try:
        request = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {"error": "not a JSON object"}
    operation = request.get("op")
    handler = handlers.get(operation) if isinstance(operation, str) else None
    return {"error": f"unknown op {operation!r}"} if handler is None else await handler(request)


def _error(reason: str) -> bytes:
    return msgspec.json.encode({"error": reason.encode(errors="backslashreplace").decode()})
