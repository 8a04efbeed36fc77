"""``search``: full text over the sessions of a place, the newest first (spec 4.1).

Each owner has an index file of its own, so that nobody's search goes through another's words. It is brought up to date
and asked in a worker thread, which takes what it needs of the store over the bridge, a little at a time. A search may
take as long as its user's histories are big, so a user has one at a time, and there are several threads for all.
"""

import contextlib
import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import trio

from backend.asking import live_ids
from backend.errors import Missing
from backend.rows import Owner
from backend.search.index import IndexDamaged, SearchIndex
from backend.search.query import expression
from backend.search.search import Found, search
from backend.search.update import Progress, update
from backend.search.verify import Verified, drift
from backend.store import Store
from ctxfs.bridge import Bridge
from ctxfs.ctx_socket import reach
from ctxfs.ctx_socket.requests import Search
from ctxfs.ctx_socket.telling import Telling
from ctxfs.sockets.connection import Connection, Peer

if TYPE_CHECKING:
    from ctxfs.core import Core

T = TypeVar("T")

AT_ONCE = 8


class Searches:
    """The indexes of one mount, below ``directory``; ``sync`` is the store's."""

    def __init__(self, bridge: Bridge, directory: Path, sync: Callable[[], None]) -> None:
        self._bridge = bridge
        self._directory = directory
        self._sync = sync
        self._threads = trio.CapacityLimiter(AT_ONCE)
        self._users: defaultdict[int, trio.Lock] = defaultdict(trio.Lock)
        self._turns: defaultdict[int, trio.Lock] = defaultdict(trio.Lock)
        self._looked_through: set[int] = set()

    async def search(self, connection: Connection, request: Search) -> None:
        """A frame a hit, then ``end``."""
        wanted, at = expression(request.text), Progress()
        owners = await self._bridge.run(partial(_owners, connection.peer, request))
        look = partial(self._in_all, connection.peer.uid, owners, wanted, request.limit, at)
        telling = Telling(connection, lambda: {"entries": at.done, "of": at.of})
        found = await (telling.during(look) if request.progress else look())
        hits = heapq.nlargest(request.limit, found, key=lambda hit: (hit[0].time, hit[0].id, hit[0].n))
        for one, owner in hits:
            frame = {"type": "hit", "agent": reach.agent_name(owner), "session": one.session, "n": one.n}
            frame |= {"time": one.time, "kind": one.kind, "role": one.role, "snippet": one.snippet}
            await connection.send(frame)
        await connection.send({"type": "end", "hits": len(hits)})

    async def _in_all(
        self, uid: int, owners: Sequence[Owner], wanted: str, limit: int, at: Progress
    ) -> list[tuple[Found, Owner]]:
        async with self._users[uid]:
            return [(one, owner) for owner in owners for one in await self._of(owner, wanted, limit, at)]

    async def _of(self, owner: Owner, wanted: str, limit: int, at: Progress) -> list[Found]:
        async with self._turns[owner.id]:
            return await trio.to_thread.run_sync(self._found, owner.id, wanted, limit, at, limiter=self._threads)

    async def update(self, owner: Owner, threads: trio.CapacityLimiter, at: Progress) -> dict[int, str]:
        """Brings an owner's index up to date, looking at every session; the ids and names of the live ones.

        What takes as long as this and ``drift`` is done on the caller's ``threads``: searches of others need not wait.
        """
        async with self._turns[owner.id]:
            return await trio.to_thread.run_sync(self._updated, owner.id, at, limiter=threads)

    async def drift(self, owner: Owner, session: int, first: int, threads: trio.CapacityLimiter) -> Verified:
        """What is wrong with the index of some entries of a session, in one turn among the owner's searches."""
        async with self._turns[owner.id]:
            return await trio.to_thread.run_sync(self._verified, owner.id, session, first, limiter=threads)

    async def drop(self, owner: Owner, threads: trio.CapacityLimiter) -> None:
        """Has the index of an owner made anew by the next search."""
        async with self._turns[owner.id]:
            await trio.to_thread.run_sync(self._with_index, owner.id, SearchIndex.clear, limiter=threads)

    def _found(self, owner: int, wanted: str, limit: int, at: Progress) -> list[Found]:
        """In a worker thread, as all below."""

        def find(index: SearchIndex) -> list[Found]:
            self._update(index, owner, at)
            return search(index, self.ask, wanted, limit)

        return self._with_index(owner, find)

    def _update(self, index: SearchIndex, owner: int, at: Progress) -> None:
        update(index, owner, self.ask, self._sync, thorough=owner not in self._looked_through, progress=at)
        self._looked_through.add(owner)

    def _updated(self, owner: int, at: Progress) -> dict[int, str]:
        def look(index: SearchIndex) -> dict[int, str]:
            sessions = live_ids(self.ask, owner)
            self._update(index, owner, at)
            return sessions

        self._looked_through.discard(owner)
        return self._with_index(owner, look)

    def _verified(self, owner: int, session: int, first: int) -> Verified:
        def verify(index: SearchIndex) -> Verified:
            # Others had their turns since the last one.
            self._update(index, owner, Progress())
            return self._drift(index, session, first)

        return self._with_index(owner, verify)

    def _drift(self, index: SearchIndex, session: int, first: int) -> Verified:
        try:
            verified = drift(index, session, first, self.ask)
        except Missing:
            return Verified(None)
        gone = verified.reason is not None and not self.ask(partial(_is_live, session))
        return Verified(None) if gone else verified

    def _with_index(self, owner: int, work: Callable[[SearchIndex], T]) -> T:
        """An index that is damaged is made anew, once."""
        with contextlib.closing(SearchIndex(self._directory / f"{owner}.sqlite")) as index:
            try:
                return work(index)
            except IndexDamaged:
                index.clear()
                self._looked_through.discard(owner)
                return work(index)

    def ask(self, work: Callable[[Store], T]) -> T:
        """Asks the store from a worker thread (``backend.asking``)."""
        return trio.from_thread.run(self._bridge.run, lambda core: work(core.store))


def _owners(peer: Peer, request: Search, core: "Core") -> list[Owner]:
    return reach.owners_of(core, reach.space_of(core, peer, request, reach.READ), request.agent)


def _is_live(session: int, store: Store) -> bool:
    row = store.session_by_id(session)
    return row is not None and row.archive is None
