"""Field report 7: kill -9 of the daemon at any moment under many senders who retry: each id once, whatever is asked."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.mounting import running_mount
from tests.socket.client import connected, request
from tests.socket.workshop import Workshop, lines, to_the_end

BODY = """read -r line
umask 0
echo $CTX_RUN >> /tmp/runs
echo '{"type":"tool_call","id":"t1","name":"x","arguments":{}}'
echo '{"type":"tool_result","tool_call_id":"t1","content":"r"}'
echo '{"type":"message","role":"assistant","content":"hi"}'
"""
SENDERS = 6
SESSIONS = 3
BETWEEN_KILLS = 10
"""So many sends end before the daemon dies again."""


@pytest.fixture
def workshop(fuse_device: None) -> Iterator[Workshop]:
    with running_mount() as mount:
        yield Workshop(mount)


class Storm:
    """Senders that ask until they have an answer, and what they were told."""

    def __init__(self, workshop: Workshop, sends: int) -> None:
        self.bot = workshop.bot(BODY)
        self.sends = sends
        self.ended = threading.Semaphore(0)
        self.up = threading.Event()
        self.up.set()
        self.told: dict[tuple[str, str], dict[str, Any]] = {}

    def send_all(self, sender: int) -> None:
        session = f"s{sender % SESSIONS}"
        for number in range(self.sends):
            id = f"c{sender}-{number}"
            self.told[session, id] = self.ask(session, id)
            self.ended.release()

    def ask(self, session: str, id: str) -> dict[str, Any]:
        """The done of a send."""
        while True:
            self.up.wait()
            try:
                with connected(self.bot.path) as client:
                    client.send(request("send", id=id, input=id, session=session, queue=True) + b"\n")
                    last = to_the_end(client)[-1:]
            except OSError:
                continue
            if last and last[0]["type"] == "done":
                return last[0]

    def kill(self) -> None:
        mount = self.bot.mount
        self.up.clear()
        mount.kill()
        mount.unmount()
        mount.start()
        self.up.set()


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.longer)])
def test_each_id_is_recorded_and_run_once(workshop: Workshop, kills: int) -> None:
    storm = Storm(workshop, (kills + 1) * BETWEEN_KILLS // SENDERS + 1)
    with ThreadPoolExecutor(SENDERS) as pool:
        senders = [pool.submit(storm.send_all, sender) for sender in range(SENDERS)]
        for _ in range(kills):
            for _ in range(BETWEEN_KILLS):
                storm.ended.acquire()
            storm.kill()
        for sender in senders:
            sender.result()
    sessions = workshop.mount.path / f"home/0/agent/{storm.bot.name}/session"
    executed = Counter((storm.bot.root / "tmp/runs").read_text().split())
    assert max(executed.values()) == 1
    for session in (f"s{number}" for number in range(SESSIONS)):
        told = {id: done for (place, id), done in storm.told.items() if place == session}
        messages, events = lines(sessions / session / "messages.jsonl"), lines(sessions / session / "events.jsonl")
        runs = {event["client_id"]: event["run"] for event in events if event["type"] == "start"}
        assert Counter(m["content"] for m in messages if m["role"] == "user") == Counter(list(told))
        assert Counter(event["client_id"] for event in events if event["type"] == "start") == Counter(list(told))
        dones = [event for event in events if event["type"] == "done"]
        assert sorted(dones, key=str) == sorted(told.values(), key=str)
        assert {id: done["run"] for id, done in told.items()} == runs
        assert all(executed[done["run"]] == 1 for done in dones if done["status"] == "ok")
