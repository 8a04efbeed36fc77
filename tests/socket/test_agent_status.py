"""Spec 1.2: ``agent/<agent>.d/status`` is ``active`` while a run of that agent is, for everybody at once."""

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import PATIENCE_S, running_mount, wait_until
from tests.people import ALICE, BOB, Person
from tests.socket.client import request
from tests.socket.workshop import Bot, Workshop, to_the_end

SLEEPS = "read -r line\nsleep 1000\n"
ACTIVE, IDLE = "active\n", "idle\n"


@pytest.fixture(scope="module", params=["sqlite", "jsonl"])
def workshop(request: pytest.FixtureRequest, fuse_device: None) -> Iterator[Workshop]:
    with running_mount(request.param) as mount:
        yield Workshop(mount)


def status(bot: Bot) -> Path:
    return bot.definition / "status"


@pytest.mark.parametrize("scope", ["private", "temp"])
@pytest.mark.parametrize("person", [ALICE, BOB], ids=["alice", "bob"])
def test_it_is_active_from_start_to_done(workshop: Workshop, scope: str, person: Person) -> None:
    bot = workshop.bot(SLEEPS)
    assert status(bot).read_text() == IDLE
    before = status(bot).stat()
    with bot.talk(person) as client:
        client.send(bot.sending(id="c1", scope=scope))
        assert client.frame()["type"] == "start"
        assert status(bot).read_text() == ACTIVE
        during = status(bot).stat()
        client.send(request("cancel", id="c1", scope=scope) + b"\n")
        assert to_the_end(client)[-1]["status"] == "cancelled"
    assert status(bot).read_text() == IDLE
    after = status(bot).stat()
    assert [found.st_size for found in (before, during, after)] == [len(IDLE), len(ACTIVE), len(IDLE)]
    assert before.st_mtime_ns < during.st_mtime_ns < after.st_mtime_ns


def test_it_is_idle_when_the_last_of_its_runs_is_over(workshop: Workshop) -> None:
    bot, other = workshop.bot(SLEEPS), workshop.bot(SLEEPS)
    with bot.talk() as one, bot.talk(BOB) as two:
        for client in (one, two):
            client.send(bot.sending(id="c1"))
            client.frame()
        assert (status(bot).read_text(), status(other).read_text()) == (ACTIVE, IDLE)
        for client, now in ((one, ACTIVE), (two, IDLE)):
            client.send(request("cancel", id="c1") + b"\n")
            to_the_end(client)
            assert status(bot).read_text() == now


@pytest.mark.parametrize("body", ["exit 1\n", "echo garbage\n", "read -r line\n"])
def test_so_it_is_however_a_run_ends(workshop: Workshop, body: str) -> None:
    bot = workshop.bot(body)
    bot.send()
    assert status(bot).read_text() == IDLE


def test_a_temp_run_ends_with_its_client(workshop: Workshop) -> None:
    bot = workshop.bot(SLEEPS)
    with bot.talk() as client:
        client.send(bot.sending(scope="temp"))
        client.frame()
        assert status(bot).read_text() == ACTIVE
    wait_until(lambda: status(bot).read_text() == IDLE, "the end of the run")


def test_a_model_has_one_too(workshop: Workshop) -> None:
    model = workshop.model(SLEEPS)
    with model.talk() as client:
        client.send(model.sending(id="c1"))
        client.frame()
        assert status(model).read_text() == ACTIVE
        client.send(request("cancel", id="c1") + b"\n")
        to_the_end(client)
    assert status(model).read_text() == IDLE


def test_who_polls_it_is_woken(workshop: Workshop) -> None:
    bot = workshop.bot(SLEEPS)
    with status(bot).open("rb", buffering=0) as file, bot.talk() as client:
        changes = select.poll()
        changes.register(file, select.POLLPRI)
        assert changes.poll(0) == []
        client.send(bot.sending(id="c1"))
        client.frame()
        assert changes.poll(PATIENCE_S * 1000)
        assert os.pread(file.fileno(), 100, 0) == ACTIVE.encode()
        assert changes.poll(0) == []
        client.send(request("cancel", id="c1") + b"\n")
        to_the_end(client)
        assert changes.poll(PATIENCE_S * 1000)
        assert os.pread(file.fileno(), 100, 0) == IDLE.encode()


def test_nothing_is_active_after_a_daemon_that_died(workshop: Workshop) -> None:
    bot = workshop.bot(SLEEPS)
    with bot.talk() as client:
        client.send(bot.sending())
        client.frame()
        workshop.mount.kill()
    workshop.mount.unmount()
    workshop.mount.start()
    assert status(bot).read_text() == IDLE
