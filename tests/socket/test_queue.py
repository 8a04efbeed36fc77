"""Spec 3.3: one run at a time in a session; a send may wait its turn, and be taken out of the queue."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from tests.mounting import RunningMount, running_mount, wait_until
from tests.socket.client import request
from tests.socket.workshop import SAYS_HI, Bot, Workshop, to_the_end, types

WAITS = "read -r line\nwhile [ ! -e /tmp/go-$CTX_AGENT ]; do sleep 0.02; done\n" + SAYS_HI.split("\n", 1)[1]


def let_go(bot: Bot) -> None:
    (bot.root / f"tmp/go-{bot.name}").touch()


def marks(bot: Bot) -> list[dict[str, Any]]:
    return [event for event in bot.log()[1] if event["type"] == "mark"]


@contextlib.contextmanager
def one_waits_for_another(mount: RunningMount) -> Iterator[Bot]:
    """An agent at work on ``c1``, with ``c2`` in its queue, and both clients there."""
    bot = Workshop(mount).bot(WAITS)
    with bot.talk() as first, bot.talk() as second:
        first.send(bot.sending("one", id="c1"))
        first.frame()
        second.send(bot.sending("two", id="c2", queue=True))
        wait_until(lambda: marks(bot), "the mark")
        yield bot


def test_a_busy_session_takes_no_other_send_and_records_nothing_of_it(workshop: Workshop) -> None:
    bot = workshop.bot(WAITS)
    with bot.talk() as client:
        client.send(bot.sending(id="c1"))
        client.frame()
        before = bot.log()
        assert bot.send(id="c2")[0]["code"] == "EAGAIN"
        assert bot.log() == before
        let_go(bot)
        assert to_the_end(client)[-1]["status"] == "ok"
    assert types(bot.send(id="c2")) == ["start", "message", "done"]


def test_sessions_run_in_parallel(workshop: Workshop) -> None:
    bot = workshop.bot(WAITS)
    with bot.talk() as one, bot.talk() as two:
        one.send(bot.sending(session="one"))
        two.send(bot.sending(session="two"))
        assert types([one.frame(), two.frame()]) == ["start", "start"]
        let_go(bot)
        assert to_the_end(one)[-1]["status"] == to_the_end(two)[-1]["status"] == "ok"


def test_a_queued_send_is_recorded_and_admitted_when_the_run_ends(workshop: Workshop) -> None:
    bot = workshop.bot(WAITS)
    with bot.talk() as first, bot.talk() as second, bot.talk() as third:
        first.send(bot.sending("one", id="c1"))
        first.frame()
        for number, client in enumerate((second, third), 2):
            client.send(bot.sending(f"n{number}", id=f"c{number}", queue=True))
            wait_until(lambda n=number: len(marks(bot)) == n - 1, "the mark")  # type: ignore[misc]
        [mark, _] = marks(bot)
        assert (mark["name"], mark["data"]["messageId"]) == ("agent/input-enqueued", "c2")
        assert mark["data"]["message"] == {"content": "n2", "role": "user"}
        let_go(bot)
        assert [types(to_the_end(client)) for client in (second, third)] == [["start", "message", "done"]] * 2
    messages, _ = bot.log()
    assert [message["content"] for message in messages if message["role"] == "user"] == ["one", "n2", "n3"]
    admitted = [mark["data"] for mark in marks(bot) if mark["name"] == "agent/input-admitted"]
    log = [json.loads(line) for line in (bot.session() / "context/log.jsonl").read_text().splitlines()]
    assert [log[data["n"]]["message"]["content"] for data in admitted] == ["n2", "n3"]
    assert [data["messageId"] for data in admitted] == ["c2", "c3"]
    assert types(bot.send("n2", id="c2")) == ["done"]


def test_a_queued_send_may_be_asked_for_again_and_not_be_another(workshop: Workshop) -> None:
    bot = workshop.bot(WAITS)
    with bot.talk() as first, bot.talk() as second, bot.talk() as again:
        first.send(bot.sending("one", id="c1"))
        first.frame()
        second.send(bot.sending("two", id="c2", queue=True))
        wait_until(lambda: marks(bot), "the mark")
        assert bot.send("three", id="c2", queue=True)[0]["code"] == "EINVAL"
        again.send(bot.sending("two", id="c2", queue=True))
        let_go(bot)
        assert to_the_end(second) == to_the_end(again)
    assert [message["content"] for message in bot.log()[0]][::2] == ["one", "two"]


def test_a_queued_send_is_discarded_by_a_cancel(workshop: Workshop) -> None:
    bot = workshop.bot(WAITS)
    with bot.talk() as first, bot.talk() as second, bot.talk() as other:
        first.send(bot.sending("one", id="c1"))
        first.frame()
        second.send(bot.sending("two", id="c2", queue=True))
        wait_until(lambda: marks(bot), "the mark")
        done = other.ask("cancel", id="c2")
        assert done == {"id": "c2", "status": "cancelled", "type": "done"}
        assert second.frame() == done
        let_go(bot)
        to_the_end(first)
    assert [(mark["name"], mark["data"]["messageId"]) for mark in marks(bot)] == [
        ("agent/input-enqueued", "c2"),
        ("agent/input-discarded", "c2"),
    ]
    assert bot.kinds()[0] == ["user", "assistant"]


def test_a_queued_send_waits_for_its_turn_though_its_client_is_gone(workshop: Workshop) -> None:
    bot = workshop.bot(WAITS)
    with bot.talk() as first:
        first.send(bot.sending("one", id="c1"))
        first.frame()
        with bot.talk() as second:
            second.send(bot.sending("two", id="c2", queue=True))
            wait_until(lambda: marks(bot), "the mark")
        let_go(bot)
        to_the_end(first)
    wait_until(lambda: bot.kinds()[0] == ["user", "assistant"] * 2, "the second run")


def test_what_waits_is_judged_first(workshop: Workshop) -> None:
    bot = workshop.bot(WAITS)
    with bot.talk() as first:
        first.send(bot.sending("one", id="c1"))
        first.frame()
        assert bot.send(id="c2", queue=True, cwd="/nowhere")[0]["code"] == "ENOENT"
        assert marks(bot) == []
        let_go(bot)
        to_the_end(first)


def test_what_waited_when_the_daemon_died_is_discarded(fuse_device: None) -> None:
    with running_mount() as mount:
        with one_waits_for_another(mount) as bot:
            mount.kill()
        mount.unmount()
        mount.start()
        assert marks(bot)[-1]["data"] == {"messageId": "c2", "reason": "EHOSTDOWN"}
        let_go(bot)
        assert types(bot.send("two", id="c2")) == ["start", "message", "done"]


def test_what_waits_when_the_daemon_is_stopped_is_discarded(fuse_device: None) -> None:
    with running_mount() as mount:
        with one_waits_for_another(mount) as bot:
            mount.restart()
        assert marks(bot)[-1]["data"] == {"messageId": "c2", "reason": "EHOSTDOWN"}


def test_a_cancel_of_the_run_lets_the_next_one_in(workshop: Workshop) -> None:
    bot = workshop.bot(WAITS)
    with bot.talk() as first, bot.talk() as second:
        first.send(bot.sending("one", id="c1"))
        first.frame()
        second.send(bot.sending("two", id="c2", queue=True))
        wait_until(lambda: marks(bot), "the mark")
        first.send(request("cancel", id="c1") + b"\n")
        assert to_the_end(first)[-1]["status"] == "cancelled"
        assert second.frame()["type"] == "start"
        let_go(bot)
        assert to_the_end(second)[-1]["status"] == "ok"
