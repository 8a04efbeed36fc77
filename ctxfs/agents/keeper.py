"""Keeps a socket for each agent and model that is defined, as its definition says (spec 3.1). On trio's thread."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from ctxfs.agents.definition import wanted_sockets
from ctxfs.bridge import Bridge, MountGone
from ctxfs.files.sockets import Address
from ctxfs.loop import Future
from ctxfs.sockets.server import Service, Sockets

if TYPE_CHECKING:
    from ctxfs.core import Core

log = logging.getLogger("ctxfs.agents")

AGAIN_S = 1.0


class Keeper:
    """``service_of`` makes the service of an address."""

    def __init__(self, bridge: Bridge, sockets: Sockets, service_of: Callable[[Address], Service]) -> None:
        self._bridge = bridge
        self._sockets = sockets
        self._service_of = service_of
        self._open: dict[Address, int | None] = {}
        self._changed = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Starts once every socket is there that should be; ends by cancellation."""
        token = trio.lowlevel.current_trio_token()

        def tell() -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(self._tell, idempotent=True)

        await self._bridge.run(lambda core: core.definitions.follow(tell))
        try:
            await self._try()
            task_status.started()
            while True:
                await self._changed.wait()
                await self._try()
        finally:
            with suppress(MountGone), trio.CancelScope(shield=True, deadline=trio.current_time() + 1.0):
                await self._bridge.run(lambda core: core.definitions.unfollow())

    async def _try(self) -> None:
        """Catches up; what keeps it from that is tried again, and no reason to end the mount."""
        try:
            await self._catch_up()
        except Exception as error:
            log.warning("sockets are not as their definitions say, trying again: %r", error)
            self._changed.set()
            await trio.sleep(AGAIN_S)

    def _tell(self) -> None:
        self._changed.set()

    async def _catch_up(self) -> None:
        self._changed = trio.Event()
        wanted, waiting = await self._bridge.run(_wanted)
        try:
            await self._reconcile(wanted)
            await self._names_told()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1.0):
                await self._bridge.run(lambda core: core.definitions.done(waiting))

    async def _names_told(self) -> None:
        """Returns when no name of a socket that was closed leads anywhere, so that a new one is found by it."""
        told, token = trio.Event(), trio.lowlevel.current_trio_token()

        def tell() -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(told.set)

        await self._bridge.run(lambda core: core.kernel.when_told(tell))
        await told.wait()

    async def _reconcile(self, wanted: dict[Address, int | None]) -> None:
        for address, uid in list(self._open.items()):
            if address not in wanted or wanted[address] != uid:
                del self._open[address]
                await self._sockets.close(address)
        for address, uid in wanted.items():
            if address not in self._open:
                await self._make(address, uid)

    async def _make(self, address: Address, uid: int | None) -> None:
        try:
            await self._sockets.open(address, self._service_of(address), uid)
        except OSError as error:
            if self._sockets.over.is_set() or address not in await self._bridge.run(wanted_sockets):
                return
            log.warning("no socket %s/%s: %s", address.directory, address.file, error.strerror)
        else:
            self._open[address] = uid


def _wanted(core: "Core") -> tuple[dict[Address, int | None], list[Future[None]]]:
    return wanted_sockets(core), core.definitions.waiting()
