"""One client of a socket: who it is, its requests, and frames to it (spec 3.2).

Back-pressure is by blocking, both ways: no more is read while a request is answered, and ``send`` waits for its reader.
So a connection holds at most one frame in and one out, whatever its client does.
"""

import contextlib
import select
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, NoReturn

import trio

from backend.errors import InvalidValue
from ctxfs.sockets import frames

_CHUNK = 64 << 10
_PEERCRED = struct.Struct("3i")
_SO_PEERGROUPS = 59
_MOST_GROUPS = 256
_GID = struct.Struct("I")


class Peer(NamedTuple):
    """Who connected, as the kernel saw it then; in a user namespace the outer ids. ``pid`` may be 0."""

    uid: int
    gid: int
    groups: frozenset[int]
    pid: int


def peer_of(client: socket.socket | trio.socket.SocketType) -> Peer:
    """``groups`` holds ``gid`` too, and nothing else where there are more than 256 (``OSError``)."""
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
    pid, uid, gid = _PEERCRED.unpack(credentials)
    try:
        listed = client.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST_GROUPS * _GID.size)
    except OSError:
        listed = b""
    groups = (group for (group,) in _GID.iter_unpack(listed))
    return Peer(uid & 0xFFFFFFFF, gid & 0xFFFFFFFF, frozenset((gid & 0xFFFFFFFF, *groups)), pid)


class Connection:
    """Used by one task at a time for each direction."""

    def __init__(self, stream: trio.SocketStream, peer: Peer) -> None:
        self._stream = stream
        self._lines = frames.Lines(frames.MAX_LINE_FRAME)
        self._at_end = contextlib.AsyncExitStack()
        self.peer = peer

    async def receive(self, limit: int = frames.MAX_FRAME) -> bytes | None:
        """The next line without its newline, None at the end of the stream; ``limit`` counts its newline.

        ``FrameTooLong``: it was passed over, the next may be asked for. ``InvalidValue``: the last one has no newline.
        """
        while True:
            line = self._lines.take()
            if line is not None:
                if len(line) >= limit:
                    raise frames.FrameTooLong("a frame has more than 1 MiB")
                return line
            data = await self._stream.receive_some(min(_CHUNK, self._lines.room))
            if not data:
                if self._lines.torn:
                    raise InvalidValue("the last frame has no newline")
                return None
            self._lines.feed(data)

    async def peek(self) -> bytes | None:
        """The next line, which ``receive`` returns again; None where there will be none, or too long a one."""
        while (line := self._lines.first()) is None and self._lines.room:
            data = await self._stream.receive_some(min(_CHUNK, self._lines.room))
            if not data:
                return None
            self._lines.feed(data)
        return line

    async def end_with_client(self) -> NoReturn:
        """Waits until the client has closed the connection, and raises that; that it sends no more is not that."""
        with select.epoll() as hangup:
            # No events: the end of both directions is always told.
            hangup.register(self._stream.socket.fileno(), 0)
            await trio.lowlevel.wait_readable(hangup.fileno())
        raise trio.BrokenResourceError

    def at_end(self, call: Callable[[], Awaitable[None]]) -> None:
        """``call`` is made once the connection is over, shielded from what ends it."""
        self._at_end.push_async_callback(call)

    async def send(self, frame: object) -> None:
        """Returns when the client's socket has taken it (``trio.BrokenResourceError``: there is no client)."""
        await self._stream.send_all(frames.encode(frame))

    async def send_lines(self, lines: Iterable[bytes]) -> None:
        """As ``send``, of frames that are JSON already, without their newlines."""
        await self._stream.send_all(b"".join(line + b"\n" for line in lines))

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)
        with trio.CancelScope(shield=True):
            await self._at_end.aclose()
