"""The daemon with sockets that tests open and close: ``agent/ctx.sock`` takes ``{"op", "name", "provider"?, "uid"?}``.

Run in place of ``ctxfs.daemon`` (``running_mount(module=…)``). What is opened says ``{"uid": …}`` of its client once,
then echoes.
"""

import sys

import msgspec

from ctxfs import daemon
from ctxfs.files.sockets import Address
from ctxfs.sockets import server
from ctxfs.sockets.connection import Connection

DONE = {"type": "done"}


class Order(msgspec.Struct):
    """Open or close a socket."""

    op: str
    name: str
    provider: str | None = None
    uid: int | None = None


class OpenSockets(server.Sockets):
    """Sockets whose first one opens and closes others."""

    async def open(self, address: Address, service: server.Service, uid: int | None = None) -> None:
        await super().open(address, self._order if address.name == "ctx" else service, uid)

    async def _order(self, connection: Connection, request: bytes) -> None:
        order = msgspec.json.decode(request, type=Order)
        address = Address(order.name, order.provider)
        if order.op == "open":
            await self.open(address, _echo, order.uid)
        else:
            await self.close(address)
        await connection.send(DONE)


async def _echo(connection: Connection, request: bytes) -> None:
    await connection.send({"uid": connection.peer.uid, "said": request.decode()})


if __name__ == "__main__":
    daemon.Sockets = OpenSockets  # type: ignore[attr-defined]
    sys.exit(daemon.main())
