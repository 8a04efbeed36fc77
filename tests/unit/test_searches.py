"""Whose searches wait for whose (spec 4.1)."""

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from backend.search.update import Progress
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

    def found(_self: Searches, owner: int, _wanted: str, _limit: int, _at: Any) -> list[Any]:
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


def test_a_client_that_asks_is_told_how_far_its_index_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()

    def found(_self: Searches, _owner: int, _wanted: str, _limit: int, at: Progress) -> list[Any]:
        at.of, at.done = 10, 4
        assert told.wait(60)
        return []

    class Asking(Client):
        async def send(self, frame: Any) -> None:
            await super().send(frame)
            if frame.get("of"):
                told.set()

    monkeypatch.setattr(Searches, "_found", found)
    bridge: Any = Bridge()
    client: Any = Asking(ALICE.uid)
    trio.run(Searches(bridge, tmp_path, lambda: None).search, client, Search(text="slow", progress=True))
    assert client.frames[-2] == {"type": "progress", "entries": 4, "of": 10}
    assert client.frames[-1] == END


END = {"type": "end", "hits": 0}
