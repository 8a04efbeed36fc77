"""What an agent's or a model's socket answers (spec 3.2). On trio's thread; one service a socket."""

import errno
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, assert_never
from weakref import WeakKeyDictionary

import trio
from pyfuse3 import FUSEError

from backend.errors import CtxError, InvalidValue, Missing
from backend.memory import MemoryStore
from backend.store import OwnerKind
from ctxfs.agents.definition import read_definition
from ctxfs.agents.history import Wanted
from ctxfs.agents.ledger import Ledger, MountedLedger, Place, TempLedger
from ctxfs.agents.requests import Cancel, Ping, Placed, Request, Resume, Send
from ctxfs.agents.resuming import resume
from ctxfs.agents.run import Run
from ctxfs.agents.runs import Ask, Runs
from ctxfs.bridge import Bridge
from ctxfs.ctx_socket import reach
from ctxfs.sockets import frames
from ctxfs.sockets.connection import Connection, Peer

if TYPE_CHECKING:
    from ctxfs.core import Core


class Where(NamedTuple):
    """A space as ``reach`` asks for it."""

    home: int | None
    space: str | None


class Ledgers:
    """The mount's, and one for the temp sessions of each connection."""

    def __init__(self, bridge: Bridge, runs: Runs) -> None:
        self.mounted = MountedLedger(bridge)
        self._runs = runs
        self._memory = MemoryStore()
        self._temps: WeakKeyDictionary[Connection, TempLedger] = WeakKeyDictionary()

    def of(self, connection: Connection, scope: str) -> Ledger:
        """Where sessions of that scope are recorded."""
        if scope != "temp":
            return self.mounted
        if connection not in self._temps:
            ledger = self._temps[connection] = TempLedger(self._memory)
            connection.at_end(partial(self._release, ledger))
        return self._temps[connection]

    async def _release(self, ledger: TempLedger) -> None:
        """The connection is closed: its runs are cancelled, its sessions forgotten."""
        for run in self._runs.of(ledger):
            await self._runs.end(run)
        await ledger.release()


class AgentService:
    """The service of one agent or model; an instance is what ``sockets.Sockets.open`` takes."""

    def __init__(self, bridge: Bridge, runs: Runs, ledgers: Ledgers, kind: OwnerKind, name: str) -> None:
        self._bridge = bridge
        self._runs = runs
        self._ledgers = ledgers
        self._kind = kind
        self._name = name

    async def __call__(self, connection: Connection, raw: bytes) -> None:
        request: Request = frames.decode(raw, Request)
        try:
            await self._answer(connection, request)
        except (CtxError, FUSEError, OSError) as error:
            known = {"id": request.id} if isinstance(request, Send | Cancel) else {}
            await connection.send(frames.error_frame(error, **known))

    async def _answer(self, connection: Connection, request: Request) -> None:
        match request:
            case Ping():
                await connection.send({"type": "pong"})
            case Send():
                await self._send(connection, request)
            case Resume():
                request.check_place()
                ledger = self._ledgers.of(connection, request.scope)
                place = await self._place(connection.peer, request, reach.READ)
                await resume(connection, ledger, place, request)
            case Cancel():
                await self._cancel(connection, request)
            case _:
                assert_never(request)

    async def _send(self, connection: Connection, request: Send) -> None:
        request.check()
        peer = connection.peer
        place = await self._place(peer, request, reach.CHANGE)
        definition = await self._bridge.run(lambda core: read_definition(core.store, self._kind, self._name))
        if definition is None:
            raise Missing(f"no {self._kind} {self._name!r} is defined")
        has_home = await self._bridge.run(lambda core: core.store.owner(f"home/{peer.uid}", "agent", self._name))
        wanted = Wanted(request.input, request.scope, request.cwd or definition.cwd)
        ledger = self._ledgers.of(connection, request.scope)
        ask = Ask(request, ledger, place, peer, definition, wanted, has_home is not None and self._kind == "agent")
        answer = await self._runs.send(ask)
        if answer.run is None:
            await connection.send_line(answer.line)
        else:
            await self._stream(connection, answer.line, answer.run)

    async def _stream(self, connection: Connection, line: bytes, run: Run) -> None:
        """The start, and all that follows to the done; a client that is gone ends a temp run, and no other."""
        listener = run.listen()
        try:
            async with connection.attended() as attention:
                attention.start_soon(self._hear_cancel, connection, run)
                await connection.send_line(line)
                while heard := await listener.take():
                    await connection.send_lines(heard)
        finally:
            run.forget(listener)
