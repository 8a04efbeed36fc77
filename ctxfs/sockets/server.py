"""The sockets of one mount: opened, served, and closed when the mount is gone (spec 3.1, 3.2).

A mount whose sockets stay open would never end, as they hold it; so they are all closed as soon as mountinfo has the
mount no more. Limits are by uid, so that no user takes the daemon's descriptors from the others.
"""

import contextlib
import errno
import logging
import os
import resource
import select
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import trio
from pyfuse3 import FUSEError

from backend.errors import CtxError
from ctxfs import mounts
from ctxfs.bridge import Bridge
from ctxfs.files.sockets import Address
from ctxfs.sockets import binding, frames
from ctxfs.sockets.connection import Connection, Peer, peer_of
from ctxfs.sockets.lookout import Lookout
from ctxfs.statistics import Statistics

log = logging.getLogger("ctxfs.sockets")

Service = Callable[[Connection, bytes], Awaitable[None]]

MOST_OF_ONE_USER = 256
_GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


class Limits:
    """Connections by uid: 256 each, and no more of the daemon's descriptors than an eighth each, a quarter in all."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def take(self, uid: int) -> bool:
        """Whether one more may be served; ``give`` it back then."""
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = min(MOST_OF_ONE_USER, descriptors // 8)
        if self._counts[uid] >= most or self._counts.total() >= descriptors // 4:
            return False
        self._counts[uid] += 1
        return True

    def give(self, uid: int) -> None:
        self._counts[uid] -= 1
        if not self._counts[uid]:
            del self._counts[uid]


class Sockets:
    """``owner_uid``: whose a user's own mount is, which nobody else may use; None: a mount for everybody."""

    def __init__(self, mount: mounts.Mount, bridge: Bridge, statistics: Statistics, owner_uid: int | None) -> None:
        self._mount = mount
        self._bridge = bridge
        self._statistics = statistics
        self._owner_uid = owner_uid
        self._limits = Limits()
        self._lookout = Lookout(self._failed)
        self._scopes: dict[Address, trio.CancelScope] = {}
        self._nursery: trio.Nursery | None = None
        self.over = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serves what is opened, until the mount is gone or this is cancelled; then all is closed."""
        with contextlib.closing(self._lookout):
            await self._run(task_status)

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._lookout.run)
            task_status.started()
            try:
                await unmounted(self._mount)
            finally:
                self.over.set()
            nursery.cancel_scope.cancel()

    async def open(self, address: Address, service: Service, uid: int | None = None) -> None:
        """Binds a socket and serves it: everybody's, or only ``uid``'s and root's (``OSError``)."""
        assert self._nursery is not None, "run() comes first"
        await self._bridge.run(lambda core: core.subjects.sockets.expect(address, uid))
        try:
            directory = os.path.join(self._mount.mountpoint, address.directory)
            listener = await trio.to_thread.run_sync(binding.listen, directory, address.file)
        except subprocess.SubprocessError as error:
            raise OSError(errno.EIO, str(error)) from error
        finally:
            with trio.CancelScope(shield=True):
                await self._bridge.run(lambda core: core.subjects.sockets.unexpect(address))
        if self.over.is_set():
            listener.close()
            raise OSError(errno.ENODEV, "the mount is gone")
        stream = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
        await self._nursery.start(self._serve, address, stream, partial(self._client, service, uid))

    async def close(self, address: Address) -> None:
        """Ends a socket and its connections, and takes its name out of the tree (``OSError``); nothing without one."""
        scope = self._scopes.pop(address, None)
        if scope is not None:
            scope.cancel()
        if await self._bridge.run(lambda core: core.subjects.sockets.release(address)):
            path = os.path.join(self._mount.mountpoint, address.directory, address.file)
            await trio.to_thread.run_sync(os.unlink, path)

    async def _serve(
        self,
        address: Address,
        listener: trio.SocketListener,
        client: Callable[[trio.SocketStream], Awaitable[None]],
        task_status: trio.TaskStatus[None],
    ) -> None:
        with trio.CancelScope() as scope:
            self._scopes[address] = scope
            task_status.started()
            await trio.serve_listeners(client, [listener])

    async def _client(self, service: Service, uid: int | None, stream: trio.SocketStream) -> None:
        try:
            peer = peer_of(stream.socket)
            connection = Connection(stream, peer, self._lookout)
            if not self._limits.take(peer.uid):
                await connection.send(frames.error_frame(OSError(errno.EAGAIN, "too many connections of this user")))
                return
            try:
                await self._converse(connection, service, uid)
            finally:
                self._limits.give(peer.uid)
                await connection.aclose()
        except _GONE:
            return
        except Exception as error:
            self._failed(error)

    async def _converse(self, connection: Connection, service: Service, uid: int | None) -> None:
        if not self._admits(connection.peer, uid):
            await connection.send(frames.error_frame(PermissionError(errno.EACCES, "not a socket of this user")))
            return
        while True:
            try:
                request = await connection.receive()
            except frames.FrameTooLong as error:
                await connection.send(frames.error_frame(error))
                continue
            if request is None:
                return
            await self._answer(connection, service, request)

    def _admits(self, peer: Peer, uid: int | None) -> bool:
        if self._owner_uid is not None:
            return peer.uid == self._owner_uid
        return uid is None or peer.uid in (0, uid)

    async def _answer(self, connection: Connection, service: Service, request: bytes) -> None:
        try:
            await service(connection, request)
        except Exception as raised:
            error = _single(raised)
            if isinstance(error, _GONE):
                raise error from None
            if not isinstance(error, CtxError | FUSEError | OSError):
                self._failed(error)
                error = OSError(errno.EIO, "internal error, see the daemon's log")
            await connection.send(frames.error_frame(error))

    def _failed(self, error: Exception) -> None:
        self._statistics.failed("socket", error)
        log.error("internal error in a request on a socket", exc_info=error)


def _single(error: Exception) -> Exception:
    """What went wrong in a service's nurseries, where that is one thing: that the client is gone is told many times."""
    errors = list(_each(error))
    others = [each for each in errors if not isinstance(each, _GONE)]
    return error if len(others) > 1 else (others or errors)[0]


def _each(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _each(inner)
    else:
        yield error


async def unmounted(mount: mounts.Mount) -> None:
    """Returns when mountinfo has the mount no more."""
    with open("/proc/self/mountinfo", "rb") as file:
        changes = select.poll()
        changes.register(file, select.POLLPRI)
        while mounts.is_mounted(mount):
            # A poll that is abandoned ends with the next change, or the process.
            await trio.to_thread.run_sync(changes.poll, abandon_on_cancel=True, limiter=_WATCHERS)


# The threads that wait for as long as the mount is there take no others' places.
_WATCHERS = trio.CapacityLimiter(1 << 10)
