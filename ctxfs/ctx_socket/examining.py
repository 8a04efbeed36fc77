"""``doctor``: what is wrong with sessions, their index and the search index, fault by fault (spec 4.1, 2.7).

Each session is read through in a worker thread, one at a time for each user and two at once in all; nothing is held
while a client takes what was found. Repairs nothing; a search index that is wrong is dropped, as it is only a view.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
import trio

from backend.asking import SESSIONS
from backend.doctor.faults import Fault
from backend.doctor.owners import check_owner
from backend.doctor.sessions import check_session, facts_of
from backend.doctor.stores import sessions_directory
from backend.errors import InvalidValue, Missing, StoreFailed, StoreFull
from backend.rows import ArchiveDirectory, Owner, Session
from backend.search.update import Progress
from ctxfs.bridge import Bridge
from ctxfs.ctx_socket import reach
from ctxfs.ctx_socket.requests import Doctor
from ctxfs.ctx_socket.searching import Searches
from ctxfs.ctx_socket.telling import Telling
from ctxfs.sockets.connection import Connection, Peer

if TYPE_CHECKING:
    from ctxfs.core import Core

T = TypeVar("T")

AT_ONCE = 2


class Examinations:
    """Those of one mount."""

    def __init__(self, bridge: Bridge, searches: Searches) -> None:
        self._bridge = bridge
        self._searches = searches
        self._threads = trio.CapacityLimiter(AT_ONCE)
        self._turns: defaultdict[int, trio.Lock] = defaultdict(trio.Lock)

    async def examine(self, connection: Connection, request: Doctor) -> None:
        """A frame a fault, now and then one that says how far it is, then ``end``."""
        space, owners = await self._bridge.run(partial(_asked, connection.peer, request))
        form = await self._bridge.run(lambda core: core.store.status().format)
        report = _Report(connection, facts_of(form))
        async with self._turns[connection.peer.uid]:
            if request.session is not None:
                session = await self._bridge.run(partial(_session, owners[0], request.session))
                await self._session(report, session, f"{sessions_directory(owners[0])}/{session.name}")
            else:
                for owner in owners:
                    await self._owner(report, owner)
                if request.agent is None:
                    await self._archive(report, space)
        await report.end()

    async def _owner(self, report: "_Report", owner: Owner) -> None:
        path, after = sessions_directory(owner), 0
        while page := await reach.sessions_after(self._bridge, owner, after):
            for session in page:
                await self._session(report, session, f"{path}/{session.name}")
            after = page[-1].id
        check = partial(check_owner, self._searches.ask, owner.id, f"{path}/index")
        try:
            await report.faults(await report.during(partial(trio.to_thread.run_sync, check, limiter=self._threads)))
        except StoreFailed as error:
            await report.faults([Fault("index", f"{path}/index", f"it cannot be read: {error}")])
        try:
            await self._search_index(report, owner, path)
        except (StoreFull, StoreFailed) as error:
            await report.faults([Fault("search", path, f"the search index was not looked through: {error}")])

    async def _search_index(self, report: "_Report", owner: Owner, path: str) -> None:
        """In turns with the owner's searches; an index that is wrong is dropped."""
        sessions = await report.during(partial(self._searches.update, owner, self._threads, report.indexing))
        faults: list[Fault] = []
        for session, name in sessions.items():
            at: int | None = 0
            while at is not None:
                work = partial(self._searches.drift, owner, session, at, self._threads)
                reason, following = await report.during(work)
                if reason is not None:
                    faults.append(Fault("search", f"{path}/{name}", reason))
                report.verified += (following or at) - at
                at = following
        if faults:
            await self._searches.drop(owner, self._threads)
            await report.faults(faults)

    async def _archive(self, report: "_Report", space: str) -> None:
        todo: list[tuple[int | None, str]] = [(None, "archived_sessions")]
        while todo:
            parent, path = todo.pop()
            for directory in await self._bridge.run(partial(_archive_directories, space, parent)):
                await self._archived(report, directory.id, f"{path}/{directory.name}")
                todo.append((directory.id, f"{path}/{directory.name}"))

    async def _archived(self, report: "_Report", directory: int, path: str) -> None:
        after = 0
        while page := await self._bridge.run(partial(_archived_after, directory, after)):
            for session in page:
                await self._session(report, session, f"{path}/{session.name}")
            after = page[-1].id

    async def _session(self, report: "_Report", session: Session, path: str) -> None:
        check = partial(check_session, self._searches.ask, session, path, report.facts, report.read)
        try:
            looked = await report.during(partial(trio.to_thread.run_sync, check, limiter=self._threads))
        except Missing:
            return  # deleted meanwhile
        report.session(session, looked.entries)
        await report.faults(looked.faults)


class _Report:
    """What one client is told; ``read`` is called in a worker thread."""

    def __init__(self, connection: Connection, facts: Sequence[str]) -> None:
        self.facts = facts
        self.indexing = Progress()
        self.verified = 0
        self._connection = connection
        self._counts = {"sessions": 0, "entries": 0, "bytes": 0, "faults": 0}
        self._reading = 0
        self._telling = Telling(connection, self._figures)

    async def during(self, work: Callable[[], Awaitable[T]]) -> T:
        """What ``work`` returns or raises; the client is told meanwhile how far it is."""
        return await self._telling.during(work)

    def read(self, size: int) -> None:
        """So many bytes of a session were read."""
        self._reading = size

    def _figures(self) -> dict[str, int]:
        reading = self._counts["bytes"] + self._reading
        return self._counts | {"bytes": reading, "indexed": self.indexing.done, "verified": self.verified}

    async def faults(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            self._counts["faults"] += 1
            await self._connection.send({"type": "fault", **msgspec.structs.asdict(fault)})

    def session(self, session: Session, entries: int) -> None:
        self._reading = 0
        self._counts["sessions"] += 1
        self._counts["entries"] += entries
        self._counts["bytes"] += session.messages_size + session.events_size

    async def end(self) -> None:
        await self._connection.send({"type": "end", **self._counts})


def _asked(peer: Peer, request: Doctor, core: "Core") -> tuple[str, list[Owner]]:
    if request.session is not None and request.agent is None:
        raise InvalidValue("session is one of an agent's: agent is missing")
    space = reach.space_of(core, peer, request, reach.READ)
    return space, reach.owners_of(core, space, request.agent)


def _session(owner: Owner, name: str, core: "Core") -> Session:
    session = reach.session_of(core, owner, name)
    if session is None:
        raise Missing(f"no session {name!r}")
    return session


def _archived_after(directory: int, after: int, core: "Core") -> Sequence[Session]:
    return core.store.archived_sessions(directory, after, SESSIONS)


def _archive_directories(space: str, parent: int | None, core: "Core") -> Sequence[ArchiveDirectory]:
    return core.store.archive_directories(space, parent)
