"""``search``: full text over the sessions of a place, the newest first (spec 4.1).

Each owner has an index file of its own, so that nobody's search goes through another's words. It is brought up to date
and asked in a worker thread, which takes what it needs of the store over the bridge, a little at a time. A search may
take as long as its user's histories are big, so a user has one at a time, and there are several threads for all.
"""

import contextlib
import heapq
from collections import defaultdict
from collections.abc import Callable
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
from backend.search.update import update
from backend.search.verify import drift
from backend.store import Store
from ctxfs.bridge import Bridge
from ctxfs.ctx_socket import reach
from ctxfs.ctx_socket.requests import Search
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
        wanted = expression(request.text)
        owners = await self._bridge.run(partial(_owners, connection.peer, request))
        async with self._users[connection.peer.uid]:
            found = [(one, owner) for owner in owners for one in await self._of(owner, wanted, request.limit)]
        hits = heapq.nlargest(request.limit, found, key=lambda hit: (hit[0].time, hit[0].id, hit[0].n))
        for one, owner in hits:
            frame = {"type": "hit", "agent": reach.agent_name(owner), "session": one.session, "n": one.n}
            frame |= {"time": one.time, "kind": one.kind, "role": one.role, "snippet": one.snippet}
            await connection.send(frame)
        await connection.send({"type": "end", "hits": len(hits)})

    async def _of(self, owner: Owner, wanted: str, limit: int) -> list[Found]:
        async with self._turns[owner.id]:
            return await trio.to_thread.run_sync(self._found, owner.id, wanted, limit, limiter=self._threads)

    async def drift(self, owner: Owner, threads: trio.CapacityLimiter) -> list[tuple[str, str]]:
        """What is wrong with the index of an owner: names of sessions, and what; such an index is dropped.

        That takes long, so it is done on the caller's ``threads``: searches of others need not wait for it.
        """
        async with self._turns[owner.id]:
            return await trio.to_thread.run_sync(self._verify, owner.id, limiter=threads)

    def _found(self, owner: int, wanted: str, limit: int) -> list[Found]:
        """In a worker thread, as all below."""

        def find(index: SearchIndex) -> list[Found]:
            update(index, owner, self.ask, self._sync, thorough=owner not in self._looked_through)
            self._looked_through.add(owner)
            return search(index, self.ask, wanted, limit)

        return self._with_index(owner, find)

    def _verify(self, owner: int) -> list[tuple[str, str]]:
        def verify(index: SearchIndex) -> list[tuple[str, str]]:
            sessions = live_ids(self.ask, owner)
            update(index, owner, self.ask, self._sync, thorough=True)
            wrong = [(name, reason) for session, name in sessions.items() if (reason := self._drift(index, session))]
            if wrong:
                index.clear()
            return wrong

        return self._with_index(owner, verify)

    def _drift(self, index: SearchIndex, session: int) -> str | None:
        try:
            reason = drift(index, session, self.ask)
        except Missing:
            return None
        return reason if reason is not None and self.ask(partial(_is_live, session)) else None

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
