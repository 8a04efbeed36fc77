"""Sends each request of ``agent/ctx.sock`` to what answers it."""

from typing import assert_never

from ctxfs.bridge import Bridge
from ctxfs.ctx_socket.examining import Examinations
from ctxfs.ctx_socket.importing import import_entries, import_many
from ctxfs.ctx_socket.listing import list_sessions
from ctxfs.ctx_socket.requests import Doctor, Import, ImportMany, Ping, Request, Search, Sessions, Status
from ctxfs.ctx_socket.searching import Searches
from ctxfs.ctx_socket.status import status
from ctxfs.files.sockets import Address
from ctxfs.sockets import frames
from ctxfs.sockets.connection import Connection

ADDRESS = Address("ctx")


class CtxService:
    """The service of one mount; an instance is what ``sockets.Sockets.open`` takes."""

    def __init__(self, bridge: Bridge, searches: Searches) -> None:
        self._bridge = bridge
        self._searches = searches
        self._examinations = Examinations(bridge, searches)

    async def __call__(self, connection: Connection, raw: bytes) -> None:
        request: Request = frames.decode(raw, Request)
        match request:
            case Ping():
                await connection.send({"type": "pong"})
            case Status():
                await status(self._bridge, connection, request)
            case Sessions():
                await list_sessions(self._bridge, connection, request)
            case Import():
                await import_entries(self._bridge, connection, request)
            case Search():
                await self._searches.search(connection, request)
            case ImportMany():
                await import_many(self._bridge, connection, request)
            case Doctor():
                await self._examinations.examine(connection, request)
            case _:
                assert_never(request)
