"""Where runs are recorded: the mount's store, or the memory of one connection (spec 3.3, 3.5). On trio's thread.

A ledger's ``ask`` runs on the thread of its store; it is asked for no more than about a millisecond's work at a time.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import trio

from backend.errors import CtxError, Missing
from backend.memory import MemoryStore
from backend.projection import Lines, Projection
from backend.rows import Append, Line, OwnerKind, RunLine, Session
from backend.sessions import Sessions
from backend.store import FileStore
from ctxfs.agents import mounted
from ctxfs.agents.history import Recorded, Wanted, find_recorded
from ctxfs.bridge import Bridge
from ctxfs.inodes import Kind, Node, inode_of
from ctxfs.kernel_cache import Watcher

if TYPE_CHECKING:
    from ctxfs.core import Core

T = TypeVar("T")
LinesOf = Callable[[Session], Sequence[Line]]
"""The lines to append to a session as it is now; asked again where it has moved meanwhile."""


class Place(NamedTuple):
    """A session that is or will be: of which agent or model, in which space (``home/<uid>``, ``shared/<name>``).

    ``uid`` and ``gid`` are who asks.
    """

    kind: OwnerKind
    name: str
    space: str
    scope: str
    session: str
    uid: int
    gid: int

    @property
    def key(self) -> tuple[OwnerKind, str, str]:
        """What tells the sessions of one space apart."""
        return self.kind, self.name, self.session


class Appended(NamedTuple):
    """A session with what was appended, and why that may not be on disk; None if it is."""

    session: Session
    failure: CtxError | None


class Ledger(Protocol):
    """Sessions by place, and appends to them."""

    async def find(self, place: Place) -> Session | None:
        """The live session there."""
        ...

    async def find_recorded(self, place: Place, client_id: str, wanted: Wanted) -> Recorded | None:
        """What is recorded there of a send (``history.find_recorded``)."""
        ...

    async def run_lines(self, session: int, run: str) -> Sequence[RunLine]:
        """What the log says of a run."""
        ...

    async def open(self, place: Place) -> Session:
        """The live session there, made with what is missing above it."""
        ...

    async def ask(self, work: Callable[[FileStore], T]) -> T:
        """What ``work`` returns or raises."""
        ...

    async def append(self, session: int, lines_of: LinesOf) -> Session:
        """The session with those lines, in one transaction."""
        ...

    async def begin(self, place: Place, lines_of: LinesOf, run: str, definition: int | None) -> Appended:
        """The session there, made where it is missing, with lines by which a run of a definition begins."""
        ...

    async def end(self, session: int, lines_of: LinesOf, run: str) -> Appended:
        """The session with lines by which a run ends."""
        ...

    def ended(self, run: str) -> None:
        """A run is over, and that could not be recorded."""
        ...

    async def sent(self, session: Session) -> Lines:
        """What the model is sent of a session as it was then (spec 2.5); to be read where ``ask`` works."""
        ...

    async def put_snapshots(self, session: int, contents: Mapping[str, bytes]) -> None:
        """Replaces AGENTS.md and SKILLS.md; an empty one goes."""
        ...

    async def lead(self, place: Place, old: str | None, new: str | None) -> None:
        """by-uuid/ leads to the session with ``new`` from now on, and not with ``old``; None: with nothing."""
        ...

    async def sync(self) -> None:
        """Returns when all that was appended is on disk."""
        ...

    def follow(self, session: int, wake: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """``wake`` is called on trio's thread when the log grew, while the context lasts."""
        ...


class MountedLedger:
    """The mount's store."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    async def find(self, place: Place) -> Session | None:
        return await self._bridge.run(lambda core: mounted.find_session(core, place))

    async def open(self, place: Place) -> Session:
        return await self._bridge.perform(lambda core: mounted.open_session(core, place))

    async def find_recorded(self, place: Place, client_id: str, wanted: Wanted) -> Recorded | None:
        return await self._bridge.perform(lambda core: mounted.find_recorded_send(core, place, client_id, wanted))

    async def run_lines(self, session: int, run: str) -> Sequence[RunLine]:
        async def find(core: "Core") -> Sequence[RunLine]:
            await mounted.index_runs(core, session)
            return core.store.run_lines(session, run)

        return await self._bridge.perform(find)

    async def ask(self, work: Callable[[FileStore], T]) -> T:
        return await self._bridge.run(lambda core: work(core.store))

    async def append(self, session: int, lines_of: LinesOf) -> Session:
        return await self._bridge.perform(lambda core: mounted.append(core, session, lines_of))

    async def begin(self, place: Place, lines_of: LinesOf, run: str, definition: int | None) -> Appended:
        return Appended(
            *await self._bridge.perform_durably(lambda core: mounted.begin(core, place, lines_of, run, definition))
        )

    async def end(self, session: int, lines_of: LinesOf, run: str) -> Appended:
        return Appended(*await self._bridge.perform_durably(lambda core: mounted.end(core, session, lines_of, run)))

    def ended(self, run: str) -> None:
        self._bridge.post(lambda core: core.activity.ended(run))

    async def sent(self, session: Session) -> Lines:
        return await self._bridge.perform(lambda core: mounted.sent(core, session))

    async def put_snapshots(self, session: int, contents: Mapping[str, bytes]) -> None:
        await self._bridge.run(lambda core: mounted.put_snapshots(core, session, contents))

    async def lead(self, place: Place, old: str | None, new: str | None) -> None:
        await self._bridge.run(lambda core: mounted.lead(core, place, old, new))

    async def sync(self) -> None:
        await self._bridge.perform(lambda core: core.commits.sync())

    @asynccontextmanager
    async def follow(self, session: int, wake: Callable[[], None]) -> AsyncGenerator[None, None]:
        inodes = [inode_of(Node(kind, session)) for kind in (Kind.MESSAGES, Kind.EVENTS)]
        watcher = _Waker(trio.lowlevel.current_trio_token(), wake)

        def watch(core: "Core") -> None:
            for inode in inodes:
                core.kernel.watch(inode, watcher)

        def unwatch(core: "Core") -> None:
            for inode in inodes:
                core.kernel.unwatch(inode, watcher)

        await self._bridge.run(watch)
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await self._bridge.run(unwatch)


class _Waker(Watcher):
    """Tells trio's thread that a file grew."""

    def __init__(self, token: trio.lowlevel.TrioToken, wake: Callable[[], None]) -> None:
        super().__init__()
        self._token = token
        self._wake = wake

    def wake(self) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._wake, idempotent=True)


class TempLedger:
    """The temp sessions of one connection, in a memory store that it shares with others (spec 3.5)."""

    def __init__(self, store: MemoryStore, bridge: Bridge) -> None:
        self._store = store
        self._bridge = bridge
        self._ids: dict[tuple[OwnerKind, str, str], str] = {}

    async def find(self, place: Place) -> Session | None:
        session_id = self._ids.get(place.key)
        return None if session_id is None else self._store.find(session_id)

    async def open(self, place: Place) -> Session:
        if place.key not in self._ids:
            handle = await Sessions(self._store).create()
            self._ids[place.key] = handle.id
        found = self._store.find(self._ids[place.key])
        assert found is not None, "a temp session lives as long as its connection"
        return found

    async def find_recorded(self, place: Place, client_id: str, wanted: Wanted) -> Recorded | None:
        session = await self.find(place)
        return None if session is None else find_recorded(self._store, session, client_id, wanted)

    async def run_lines(self, session: int, run: str) -> Sequence[RunLine]:
        return self._store.run_lines(session, run)

    async def ask(self, work: Callable[[FileStore], T]) -> T:
        return work(self._store)

    async def begin(self, place: Place, lines_of: LinesOf, run: str, definition: int | None) -> Appended:
        session = await self.open(place)
        begun = await self.append(session.id, lines_of)
        if definition is not None:
            await self._bridge.run(lambda core: core.activity.begun(definition, run))
        return Appended(begun, None)

    async def end(self, session: int, lines_of: LinesOf, run: str) -> Appended:
        ended = await self.append(session, lines_of)
        await self._bridge.run(lambda core: core.activity.ended(run))
        return Appended(ended, None)

    def ended(self, run: str) -> None:
        self._bridge.post(lambda core: core.activity.ended(run))

    async def append(self, session: int, lines_of: LinesOf) -> Session:
        present = self._store.session_by_id(session)
        if present is None:
            raise Missing("the temp session is gone")
        [result] = self._store.append([Append(session, lines_of(present))])
        if isinstance(result, CtxError):
            raise result
        return result.session

    async def sent(self, session: Session) -> Lines:
        projection = Projection(partial(self._store.rows, session.id))
        projection.advance(session.n)
        return projection.lines()

    async def put_snapshots(self, session: int, contents: Mapping[str, bytes]) -> None:
        """Nobody could look at them."""

    async def lead(self, place: Place, old: str | None, new: str | None) -> None:
        """A temp session is in no index, so the next turn of it begins anew."""

    async def sync(self) -> None:
        """There is no disk."""

    @asynccontextmanager
    async def follow(self, session: int, wake: Callable[[], None]) -> AsyncGenerator[None, None]:
        # Only this connection could append, and it is busy following.
        yield

    async def release(self) -> None:
        """The connection is closed: its sessions are forgotten."""
        for session_id in self._ids.values():
            await Sessions(self._store).release_if_ephemeral(session_id)
        self._ids.clear()
