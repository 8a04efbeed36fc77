"""Whose searches wait for whose (spec 4.1)."""

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from ctxfs.ctx_socket.requests import Search
from ctxfs.ctx_socket.searching import AT_ONCE, Searches
from ctxfs.sockets.connection import Peer
from tests.people import ALICE, BOB

MOST = 1000


class Bridge:
    """An owner for each request, whose id begins with the asker's uid."""

    def __init__(self) -> None:
        self._asked = itertools.count()

    async def run(self, work: Any) -> Any:
        [peer, _] = work.args
        return [_Owner(peer.uid * MOST + next(self._asked))]


class _Owner:
    kind, name = "agent", "a"

    def __init__(self, uid: int) -> None:
        self.id = uid


class Client:
    def __init__(self, uid: int) -> None:
        self.peer = Peer(uid, uid, frozenset((uid,)), 1)
        self.frames: list[Any] = []

    async def send(self, frame: Any) -> None:
        self.frames.append(frame)


def test_searches_of_one_user_never_keep_another_from_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def found(_self: Searches, owner: int, _wanted: str, _limit: int) -> list[Any]:
        if owner // MOST == ALICE.uid:
            over.wait()
        return []

    monkeypatch.setattr(Searches, "_found", found)
    bridge: Any = Bridge()
    searches = Searches(bridge, tmp_path, lambda: None)
    alices: list[Any] = [Client(ALICE.uid) for _ in range(2 * AT_ONCE)]
    bob: Any = Client(BOB.uid)

    async def ask() -> None:
        async with trio.open_nursery() as nursery:
            for client in alices:
                nursery.start_soon(searches.search, client, Search(text="slow"))
            await trio.testing.wait_all_tasks_blocked()
            try:
                with trio.fail_after(30):
                    await searches.search(bob, Search(text="quick"))
                assert (bob.frames, [client.frames for client in alices]) == ([END], [[]] * len(alices))
            finally:
                over.set()

    trio.run(ask)
    assert [client.frames for client in alices] == [[END]] * len(alices)


END = {"type": "end", "hits": 0}
