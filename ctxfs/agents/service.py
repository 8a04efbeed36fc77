"""What an agent's or a model's socket answers (spec 3.2). On trio's thread; one service a socket."""

import contextlib
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, assert_never
from weakref import WeakKeyDictionary

import trio
from pyfuse3 import FUSEError

from backend.errors import CtxError, Missing
from backend.memory import MemoryStore
from backend.rows import Line, OwnerKind, Session
from backend.strict_json import lenient_object
from ctxfs.agents import steps
from ctxfs.agents.asks import Ask, Begun, Looked, beginning, start_line
from ctxfs.agents.definition import Definition, read_definition
from ctxfs.agents.history import Recorded, Wanted
from ctxfs.agents.ledger import Ledger, MountedLedger, Place, TempLedger
from ctxfs.agents.listeners import Listener
from ctxfs.agents.mounted import begin, find_recorded_send
from ctxfs.agents.recovery import recover
from ctxfs.agents.requests import Cancel, Ping, Placed, Request, Resume, Send
from ctxfs.agents.resuming import resume
from ctxfs.agents.run import Run
from ctxfs.agents.runs import Runs
from ctxfs.bridge import Bridge
from ctxfs.ctx_socket import reach
from ctxfs.files.sockets import Address
from ctxfs.sockets import frames
from ctxfs.sockets.connection import Connection, Peer

if TYPE_CHECKING:
    from ctxfs.core import Core

_MAX_ID = 255


class Where(NamedTuple):
    """A space as ``reach`` asks for it."""

    home: int | None
    space: str | None


class Agents:
    """All agents and models of a mount: where their sessions are recorded, and the services of their sockets."""

    def __init__(self, bridge: Bridge, runs: Runs) -> None:
        self.bridge = bridge
        self.runs = runs
        self.mounted = MountedLedger(bridge)
        self._memory = MemoryStore()
        self._temps: WeakKeyDictionary[Connection, TempLedger] = WeakKeyDictionary()

    async def recover(self) -> None:
        """Ends what died with an earlier daemon; before any socket is there."""
        await recover(self.mounted)

    def service_of(self, address: Address) -> "AgentService":
        if address.provider is None:
            return AgentService(self, "agent", address.name)
        return AgentService(self, "model", f"{address.provider}/{address.name}")

    def ledger(self, connection: Connection, scope: str) -> Ledger:
        """Where a connection's sessions of that scope are recorded."""
        if scope != "temp":
            return self.mounted
        if connection not in self._temps:
            ledger = self._temps[connection] = TempLedger(self._memory, self.bridge)
            connection.at_end(partial(self._release, ledger))
        return self._temps[connection]

    async def _release(self, ledger: TempLedger) -> None:
        """The connection is closed: its runs are cancelled, its sessions forgotten."""
        for run in self.runs.of(ledger):
            with contextlib.suppress(OSError):
                await self.runs.end(run)
        await ledger.release()


class AgentService:
    """The service of one agent or model; an instance is what ``sockets.Sockets.open`` takes."""

    def __init__(self, agents: Agents, kind: OwnerKind, name: str) -> None:
        self._agents = agents
        self._bridge = agents.bridge
        self._runs = agents.runs
        self._kind = kind
        self._name = name
        # As of a revision of all definitions.
        self._definition: tuple[int, Definition | None] = (-1, None)

    async def __call__(self, connection: Connection, raw: bytes) -> None:
        try:
            await self._answer(connection, frames.decode(raw, Request))
        except (CtxError, FUSEError, OSError) as error:
            await connection.send(frames.error_frame(error, **_known(raw)))

    async def _answer(self, connection: Connection, request: Request) -> None:
        match request:
            case Ping():
                await connection.send({"type": "pong"})
            case Send():
                await self._send(connection, request)
            case Resume():
                request.check_place()
                ledger = self._agents.ledger(connection, request.scope)
                place = await self._place(connection.peer, request, reach.READ)
                await resume(connection, ledger, place, request)
            case Cancel():
                await self._cancel(connection, request)
            case _:
                assert_never(request)

    async def _send(self, connection: Connection, request: Send) -> None:
        request.check()
        peer, ledger, listener = connection.peer, self._agents.ledger(connection, request.scope), Listener()

        async def look_up(run: str | None) -> Looked:
            if isinstance(ledger, MountedLedger):
                return await self._look_up(peer, request, ledger, run)
            ask = await self._bridge.run(lambda core: self._look_at(core, peer, request, ledger))
            return Looked(ask, await ledger.find_recorded(ask.place, request.id, ask.wanted))

        space = f"home/{peer.uid}" if request.space is None else f"shared/{request.space}"
        try:
            answer = await self._runs.send((ledger, space, self._kind, self._name, request.session), look_up, listener)
            if answer.run is None:
                await connection.send_lines([answer.line])
            else:
                await self._stream(connection, answer.line, answer.run, listener)
        finally:
            listener.leave()

    async def _look_up(self, peer: Peer, request: Send, ledger: MountedLedger, run: str | None) -> Looked:
        """All in one turn of the FUSE thread, and what was recorded is on disk."""

        async def look(core: "Core") -> tuple[Ask, Recorded | None, tuple[Session, Line] | None]:
            ask = self._look_at(core, peer, request, ledger)
            recorded = await find_recorded_send(core, ask.place, request.id, ask.wanted)
            if run is None or recorded is not None or not ask.order(run).is_ready:
                return ask, recorded, None
            steps.reached("prepared")
            start = start_line(ask, run)
            session = await begin(core, ask.place, beginning(ask, run, start), run, ask.definition.number)
            return ask, None, (session, start)

        (ask, recorded, begun), failure = await self._bridge.perform_durably(look)
        return Looked(ask, recorded, None if begun is None else Begun(begun[0], failure, begun[1]))

    async def _stream(self, connection: Connection, line: bytes, run: Run, listener: Listener) -> None:
        """A start, and what follows to the done. A client that is gone ends the connection, and with it a temp run."""
        cancels = 0

        def takes(raw: bytes) -> bool:
            """Requests are answered one after another, but a run may be cancelled on the connection that hears it."""
            nonlocal cancels
            request = _cancel_of(raw)
            if request is None or request.id not in (run.id, run.client_id):
                return False
            cancels += 1
            run.cancel()
            return True

        def gone() -> None:
            listener.leave()
            listener.end()

        with connection.attended(takes, gone):
            # What the run says at once goes along with its start.
            await trio.lowlevel.checkpoint()
            await connection.send_soon([line, *listener.heard()])
            while frames_heard := await listener.take():
                await connection.send_soon(frames_heard)
        if listener.is_gone or run.done is None:
            # Its end could not be recorded, which the client was told; nothing else would tell it that this is all.
            raise trio.BrokenResourceError
        if cancels:
            await connection.send_lines([run.done] * cancels)

    async def _cancel(self, connection: Connection, request: Cancel) -> None:
        request.check_place()
        place = await self._place(connection.peer, request, reach.CHANGE)
        if request.scope == "temp":
            done = await self._runs.cancel_temp(place, request.id)
        else:
            done = await self._runs.cancel((self._agents.mounted, place.space, *place.key), request.id)
        await connection.send_lines([done])

    async def _place(self, peer: Peer, placed: Placed, wanted: int) -> Place:
        return await self._bridge.run(lambda core: self._find_place(core, peer, placed, wanted))

    # on the FUSE thread

    def _find_place(self, core: "Core", peer: Peer, placed: Placed, wanted: int) -> Place:
        space = reach.space_of(core, peer, Where(None, placed.space), wanted)
        return Place(self._kind, self._name, space, placed.scope, placed.session, peer.uid, peer.gid)

    def _read_definition(self, core: "Core") -> Definition:
        if self._definition[0] != core.definitions.revision:
            self._definition = core.definitions.revision, read_definition(core.store, self._kind, self._name)
        if self._definition[1] is None:
            raise Missing(f"no {self._kind} {self._name!r} is defined")
        return self._definition[1]

    def _look_at(self, core: "Core", peer: Peer, request: Send, ledger: Ledger) -> Ask:
        place = self._find_place(core, peer, request, reach.CHANGE)
        definition = self._read_definition(core)
        own = self._kind == "agent" and core.store.owner(f"home/{peer.uid}", "agent", self._name)
        wanted = Wanted(request.input, request.scope, request.cwd or definition.cwd)
        return Ask(request, ledger, place, peer, definition, wanted, bool(own))


def _known(raw: bytes) -> dict[str, str]:
    """What a refusal says of its request: the id, where it has one, whatever else is wrong with it."""
    try:
        id = lenient_object(raw).get("id")
    except ValueError:
        return {}
    return {"id": id} if isinstance(id, str) and len(id) <= _MAX_ID and id.isprintable() else {}


def _cancel_of(raw: bytes) -> Cancel | None:
    """The cancel that a line is, None for anything else."""
    try:
        request = frames.decode(raw, Request)
    except CtxError:
        return None
    return request if isinstance(request, Cancel) else None
