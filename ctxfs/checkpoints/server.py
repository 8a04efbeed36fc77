"""The socket of the checkpoint daemon: frames, and who asks (spec 6.3, 6.4). trio, one thread.

A connection is one request. Nothing that a client sends, or leaves out, touches another's connection.
"""

import errno
import logging
import socket
import stat
import struct
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from backend.checkpoints import wire
from backend.checkpoints.bincode import WireError
from backend.checkpoints.errors import DaemonRunning
from backend.checkpoints.service import Service

# Of one user other than root: connections, and how many of them move much at once.
MAX_CONNECTIONS = 512
MAX_LARGE = 4
LARGE_BYTES = 64 << 10

_SOCKET_MODE = 0o666
_DIRECTORY_MODE = 0o755
_BACKLOG = 512
_CHUNK = 1 << 20
_CREDENTIALS = struct.Struct("iII")

log = logging.getLogger("ctxfs.checkpoints")


def listen(path: Path) -> trio.SocketListener:
    """A listening socket for everybody, in place of one that nobody answers on (``DaemonRunning``, ``OSError``)."""
    _make_directory(path.parent)
    _make_way(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(_SOCKET_MODE)
    listener.listen(_BACKLOG)
    return trio.SocketListener(trio.socket.from_stdlib_socket(listener))


def _make_directory(path: Path) -> None:
    """Whatever the umask, everybody gets through what is made here, and root alone puts anything there."""
    if not path.is_dir():
        _make_directory(path.parent)
        path.mkdir()
        path.chmod(_DIRECTORY_MODE)


def _make_way(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "it is there and no socket", str(path))
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            pass  # it has its hands full
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise DaemonRunning(f"another checkpoint daemon answers at {path}")


class Server:
    """Answers connections from a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._connections: Counter[int] = Counter()
        self._large: dict[int, trio.Semaphore] = defaultdict(lambda: trio.Semaphore(MAX_LARGE))

    async def serve(self, listener: trio.SocketListener, handlers: trio.Nursery) -> None:
        """Accepts until cancelled; what was accepted is answered in ``handlers``."""
        await trio.serve_listeners(self._one_client, [listener], handler_nursery=handlers)

    async def _one_client(self, stream: trio.SocketStream) -> None:
        uid = _peer(stream)
        self._connections[uid] += 1
        try:
            if uid == 0 or self._connections[uid] <= MAX_CONNECTIONS:
                await self._exchange(stream, uid)
        except trio.BrokenResourceError:
            return
        except Exception:
            log.exception("a connection failed")
        finally:
            self._connections[uid] -= 1

    async def _exchange(self, stream: trio.SocketStream, uid: int) -> None:
        response = await self._response(stream, uid)
        if response is not None:
            framed = await trio.to_thread.run_sync(_framed, response)
            async with self._room(uid, len(framed)):
                await stream.send_all(framed)

    async def _response(self, stream: trio.SocketStream, uid: int) -> wire.Response | None:
        """None where the client left before it had asked."""
        try:
            request = await self._request(stream, uid)
        except WireError as error:
            return wire.Error(wire.ErrorCode.InternalError, str(error))
        return None if request is None else await self._service.answer(request, uid)

    async def _request(self, stream: trio.SocketStream, uid: int) -> wire.Request | None:
        header = await _exactly(stream, wire.HEADER_BYTES)
        if header is None:
            return None
        length = wire.payload_length(header)
        async with self._room(uid, length):
            payload = await _exactly(stream, length)
            return None if payload is None else wire.decode_request(payload)

    @asynccontextmanager
    async def _room(self, uid: int, size: int) -> AsyncIterator[None]:
        """Much of one user is in memory a few times at most."""
        if uid == 0 or size <= LARGE_BYTES:
            yield
            return
        async with self._large[uid]:
            yield


async def _exactly(stream: trio.SocketStream, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        chunk = await stream.receive_some(min(count - len(data), _CHUNK))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def _framed(response: wire.Response) -> bytes:
    try:
        return wire.frame(wire.encode_response(response))
    except WireError as error:
        return wire.frame(wire.encode_response(wire.Error(wire.ErrorCode.InternalError, str(error))))


def _peer(stream: trio.SocketStream) -> int:
    """The uid of the process that connected."""
    credentials = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(credentials)[1]
    return uid
