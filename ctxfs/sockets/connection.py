"""One client of a socket: who it is, its requests, and frames to it (spec 3.2).

Back-pressure is by blocking, both ways: no more is read while a request is answered, and ``send`` waits for its reader.
So a connection holds at most one frame in and one out, whatever its client does.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple

import trio

from ctxfs.sockets import frames
from ctxfs.sockets.lookout import Lookout

_CHUNK = 64 << 10
_PEERCRED = struct.Struct("iII")
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
    return Peer(uid, gid, frozenset((gid, *groups)), pid)


class Connection:
    """Used by one task."""

    def __init__(self, stream: trio.SocketStream, peer: Peer, lookout: Lookout) -> None:
        self._stream = stream
        self._lookout = lookout
        self._lines = frames.Lines(frames.MAX_LINE_FRAME)
        self._at_end = contextlib.AsyncExitStack()
        self.peer = peer

    async def receive(self, limit: int = frames.MAX_FRAME) -> bytes | None:
        """The next line without its newline, None at the end of the stream; ``limit`` counts its newline.

        ``FrameTooLong``: it was passed over, the next may be asked for. The last one may have no newline.
        """
        while (line := self._lines.take()) is None:
            data = await self._stream.receive_some(min(_CHUNK, self._lines.room))
            if not data:
                line = self._lines.end()
                break
            self._lines.feed(data)
        if line is not None and len(line) >= limit:
            raise frames.FrameTooLong("a frame has more than 1 MiB")
        return line

    @contextlib.contextmanager
    def attended(self, takes: Callable[[bytes], bool], gone: Callable[[], None]) -> Iterator[None]:
        """In the block, ``takes`` is shown each line that the client sends, until it leaves one to ``receive``.

        ``gone`` is called when the client has closed the connection; that it sends no more is not that.
        """

        def look() -> bool:
            while (line := self._lines.first()) is not None:
                if not takes(line):
                    return False
                self._lines.take()
            return self._lines.room > 0

        def readable() -> bool:
            try:
                data = os.read(descriptor, min(_CHUNK, self._lines.room))
            except BlockingIOError:
                return True
            except OSError:
                return False
            self._lines.feed(data)
            return data != b"" and look()

        descriptor = self._stream.socket.fileno()
        with self._lookout.watching(descriptor, readable if look() else None, gone):
            yield

    def at_end(self, call: Callable[[], Awaitable[None]]) -> None:
        """``call`` is made once the connection is over, shielded from what ends it."""
        self._at_end.push_async_callback(call)

    async def send(self, frame: object) -> None:
        """Returns when the client's socket has taken it (``trio.BrokenResourceError``: there is no client)."""
        await self._stream.send_all(frames.encode(frame))

    async def send_lines(self, lines: Iterable[bytes]) -> None:
        """As ``send``, of frames that are JSON already, without their newlines."""
        await self._stream.send_all(b"".join(line + b"\n" for line in lines))

    async def send_soon(self, lines: Iterable[bytes]) -> None:
        """As ``send_lines``; lets nobody go first where the client's socket has room. For who waits often enough."""
        data = b"".join(line + b"\n" for line in lines)
        try:
            sent = os.write(self._stream.socket.fileno(), data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise trio.BrokenResourceError from error
        if sent < len(data):
            await self._stream.send_all(data[sent:])

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)
        with trio.CancelScope(shield=True):
            await self._at_end.aclose()
