"""What a send costs beyond the agent's own time: the echo has none, so it is all ours (spec 3.3).

A send is two transactions that are on disk before the client hears of them. The median is of sends that come one after
another, in turns over the connections: from the last byte that a client writes to the last that it reads, so nothing of
it is another send's, nor the client's JSON. How many come through at once is the second figure.
"""

import json
import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.bench import Bench
from tests.bench.figures import AtMost, Claim, Report
from tests.bench.rows.memory import resident_mib
from tests.mounting import wait_until
from tests.socket.client import Client, connected, request

CONNECTIONS = 50
SENDS = 1000


def sends(bench: Bench) -> Report:
    """1000 sends over 50 connections, each with a session of its own: one after another, and all at once."""
    pid = bench.lone.pid
    with _connections(bench.lone.mount.path / "agent/echo.sock") as clients:
        for client in clients:
            client.send_one()
        before, files = resident_mib(pid), _descriptors(pid)
        one_by_one = [clients[n % CONNECTIONS].send_one() for n in range(SENDS)]
        rate = _all_at_once(clients)
        # The last of its connections gives back what it had just after its done.
        wait_until(lambda: _descriptors(pid) <= files, "the closing of descriptors")
        growth = resident_mib(pid) - before
    return Report(
        f"{SENDS} sends to the echo over {CONNECTIONS} connections",
        claims=[
            Claim("a send, start to done", statistics.median(one_by_one) * 1000, AtMost(3), unit=" ms"),
            Claim("sends that come all at once", rate, None, unit=" /s"),
            Claim("growth of resident memory", growth, AtMost(4), unit=" MiB"),
        ],
    )


class _Talker:
    """One connection, and the sends on it."""

    def __init__(self, client: Client, session: str) -> None:
        self._client = client
        self._session = session

    def send_one(self) -> float:
        """How long a send took, in seconds."""
        sent = request("send", id=os.urandom(16).hex(), input="hello", session=self._session) + b"\n"
        lines = []
        begun = time.perf_counter()
        self._client.send(sent)
        while b'"type":"done"' not in (line := self._client.line()):
            lines.append(line)
        took = time.perf_counter() - begun
        assert [json.loads(line)["type"] for line in lines] == ["start", "delta", "message"]
        assert json.loads(line)["status"] == "ok"
        return took


@contextmanager
def _connections(path: Path) -> Iterator[list[_Talker]]:
    with ExitStack() as stack:
        yield [_Talker(stack.enter_context(connected(path)), f"s{number}") for number in range(CONNECTIONS)]


def _all_at_once(talkers: list[_Talker]) -> float:
    """Sends in a second, where every connection sends its share."""

    def talk(talker: _Talker) -> None:
        for _ in range(SENDS // CONNECTIONS):
            talker.send_one()

    threads = [threading.Thread(target=talk, args=[talker]) for talker in talkers]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return SENDS / (time.perf_counter() - begun)


def _descriptors(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))
