"""Spec 3.2: resume, a session's entries after a cursor, and those that follow."""

import json
import os
from typing import Any

import pytest

from tests.mounting import RunningMount, running_mount, wait_until
from tests.people import BOB
from tests.socket.client import Client, request
from tests.socket.workshop import Bot, Workshop, types

CALLS = """read -r line
echo '{"type":"tool_call","id":"call-1","name":"t","arguments":{}}'
echo '{"type":"tool_result","tool_call_id":"call-1","content":"x"}'
"""


def resumed(client: Client, **fields: Any) -> list[dict[str, Any]]:
    client.send(request("resume", **fields) + b"\n")
    return client.frames("end", "error")


@pytest.fixture(scope="module")
def bot(workshop: Workshop) -> Bot:
    """A session of two runs."""
    bot = workshop.bot(CALLS)
    bot.send("one", id="c1")
    bot.send("two", id="c2")
    return bot


def entries(bot: Bot) -> list[dict[str, Any]]:
    """Every entry in log order, as frames."""
    log = [json.loads(line) for line in (bot.session() / "context/log.jsonl").read_text().splitlines()]
    messages, events = map(iter, bot.log())
    return [{**next(messages), "type": "message"} if entry["kind"] == "message" else next(events) for entry in log]


def test_all_of_a_session_in_log_order(bot: Bot) -> None:
    with bot.talk() as client:
        *frames, end = resumed(client)
    assert frames == entries(bot)
    assert end == {"n": len(frames), "type": "end"}


def test_events_are_what_is_stored_to_the_byte(bot: Bot) -> None:
    with bot.talk() as client:
        client.send(request("resume") + b"\n")
        received = []
        while b'"type":"end"' not in (line := client.line()):
            received.append(line)
    stored = (bot.session() / "events.jsonl").read_bytes()
    assert b"".join(line for line in received if b'"type":"message"' not in line) == stored


def test_after_a_cursor(bot: Bot) -> None:
    everything = entries(bot)
    starts = [n for n, frame in enumerate(everything) if frame["type"] == "start"]
    call = next(n for n, frame in enumerate(everything) if frame["type"] == "tool_call")
    cursors: dict[Any, int] = {
        everything[starts[0]]["id"]: starts[0] + 1,
        everything[starts[1]]["id"]: starts[1] + 1,
        "call-1": call + 1,
        "0": 0,
        "3": 3,
        3: 3,
        str(len(everything)): len(everything),
    }
    for cursor, first in cursors.items():
        with bot.talk() as client:
            *frames, end = resumed(client, after=cursor)
        assert frames == everything[first:], cursor
        assert end["n"] == len(everything)


@pytest.mark.parametrize("after", ["nothing", "c1", "call-2", "10000", 10000, -1, "9" * 400])
def test_an_unknown_cursor_is_never_silence(bot: Bot, after: Any) -> None:
    with bot.talk() as client:
        [refusal] = resumed(client, after=after)
    assert refusal["code"] == "ENOENT"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"session": "none"}, "ENOENT"),
        ({"session": "a/b"}, "EINVAL"),
        ({"after": True}, "EINVAL"),
        ({"follow": 1}, "EINVAL"),
        ({"scope": "shared", "space": "none"}, "ENOENT"),
        ({"scope": "temp"}, "ENOENT"),
    ],
)
def test_what_cannot_be_resumed_is_refused(bot: Bot, fields: dict[str, Any], code: str) -> None:
    with bot.talk() as client:
        assert resumed(client, **fields)[-1]["code"] == code


def test_a_session_is_not_anothers_to_resume(bot: Bot) -> None:
    with bot.talk(BOB) as client:
        assert resumed(client)[0]["code"] == "ENOENT"


def test_entries_that_follow_come_at_once_whoever_appends_them(workshop: Workshop) -> None:
    bot = workshop.bot()
    bot.send("one", id="c1")
    with bot.talk() as follower:
        follower.send(request("resume", follow=True) + b"\n")
        before = [follower.frame() for _ in entries(bot)]
        assert types(before)[:2] == ["message", "start"]
        with (bot.session() / "messages.jsonl").open("a") as file:
            file.write('{"role":"user","content":"by file"}\n')
        assert follower.frame()["content"] == "by file"
        bot.send("two", id="c2")
        after = entries(bot)[len(before) + 1 :]
        assert [follower.frame() for _ in after] == after


def test_who_follows_and_leaves_is_noticed(served: RunningMount, bot: Bot) -> None:
    def held() -> int:
        return len(os.listdir(f"/proc/{served.pid}/fd"))

    before = held()
    for _ in range(5):
        with bot.talk() as client:
            client.send(request("resume", follow=True) + b"\n")
            client.frame()
    wait_until(lambda: held() <= before, "the closing of the connections")


def test_a_message_of_a_mebibyte_fits_a_frame(workshop: Workshop) -> None:
    bot = workshop.bot()
    bot.send(id="c1")
    line = json.dumps({"role": "user", "content": ""})
    big = json.dumps({"role": "user", "content": "x" * ((1 << 20) - len(line))})
    with (bot.session() / "messages.jsonl").open("a") as file:
        file.write(big + "\n")
    with bot.talk() as client:
        frames = resumed(client)
    assert frames[-2] == {**json.loads(big), "type": "message"}


def test_a_long_history_is_streamed(workshop: Workshop) -> None:
    bot = workshop.bot()
    bot.send(id="c1")
    with (bot.session() / "messages.jsonl").open("a") as file:
        for n in range(20_000):
            file.write(json.dumps({"role": "user", "content": f"{n} {'y' * 200}"}) + "\n")
    with bot.talk() as client:
        frames = resumed(client)
    assert [frame["content"].split(" ")[0] for frame in frames[-20_001:-1]] == [str(n) for n in range(20_000)]


def test_in_a_connection_a_temp_session_is_resumed(workshop: Workshop) -> None:
    bot = workshop.bot()
    with bot.talk() as client:
        client.send(bot.sending(scope="temp"))
        client.frames("done")
        assert types(resumed(client, scope="temp")) == ["message", "start", "state", "message", "done", "state", "end"]


def test_foreign_history_is_served_as_it_is(fuse_device: None) -> None:
    with running_mount("jsonl") as mount:
        bot = Workshop(mount).bot()
        bot.send(id="c1")
        assert mount.stop() == 0
        foreign = mount.store / f"home/1001/agent/{bot.name}/session/foreign"
        foreign.mkdir()
        (foreign / "messages.jsonl").write_text('{"role":"user","content":"x"}\nnot JSON\n')
        (foreign / "events.jsonl").write_text('{"type":"odd"}\n')
        mount.start()
        with bot.talk() as client:
            assert resumed(client, session="foreign") == [
                {"role": "user", "content": "x", "type": "message"},
                {"type": "odd"},
                {"n": 2, "type": "end"},
            ]
