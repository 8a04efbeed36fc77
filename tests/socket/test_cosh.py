"""The adapter ``cosh`` (spec 5.2): a scripted cosh-core that misbehaves, as an agent of a mount."""

import json
import os
from typing import Any

import pytest

from tests.cosh_store import session_id
from tests.people import ALICE
from tests.socket.workshop import Bot, Workshop, types

A, B = session_id(0xA), session_id(0xB)


def init(id: str, **more: Any) -> dict[str, Any]:
    return {"type": "system", "subtype": "init", "session_id": id, "model": "m", "tools": [], **more}


def said(text: str, *calls: dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "text", "text": text}, *calls]
    return {"type": "assistant", "session_id": A, "message": {"content": content}}


def result(id: str = A, **more: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "result": "completed", "session_id": id, **more}


def failed(text: str, id: str = A, **more: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "error", "is_error": True, "errors": [text], "session_id": id, **more}


def delta(text: str, kind: str = "text") -> dict[str, Any]:
    return {
        "type": "stream_event",
        "event": {"type": "content_block_delta", "index": 0, "delta": {"type": f"{kind}_delta", kind: text}},
    }


def core(*lines: dict[str, Any] | str, ends: str = "while read -r line; do :; done\n") -> str:
    """A core that notes its arguments, reads both lines of the opening, prints these and waits for the end of stdin."""
    said = "".join(f"printf '%s\\n' '{line if isinstance(line, str) else json.dumps(line)}'\n" for line in lines)
    return f'echo "$@" >> /tmp/arguments\nread -r initialize\nread -r user\necho "$user" > /tmp/user\n{said}{ends}'


@pytest.fixture
def bot(workshop: Workshop) -> Bot:
    for name in ("arguments", "user"):
        (workshop.root / "tmp" / name).unlink(missing_ok=True)
    return workshop.bot(core(init(A), said("hi"), result()), meta='{"adapter":"cosh"}')


def uuids(bot: Bot) -> dict[str, str]:
    directory = bot.home / "session/index/by-uuid"
    return {name: (directory / name).read_text().strip() for name in os.listdir(directory)}


def arguments(bot: Bot) -> list[str]:
    return (bot.root / "tmp/arguments").read_text().splitlines()


def test_a_turn_becomes_frames_and_its_session_is_resumed(bot: Bot) -> None:
    assert types(bot.send("hello")) == ["start", "message", "done"]
    assert json.loads((bot.root / "tmp/user").read_text()) == {
        "type": "user",
        "message": {"role": "user", "content": "hello"},
    }
    assert uuids(bot) == {A: "default"}
    assert bot.send("again")[-1]["status"] == "ok"
    assert arguments(bot) == ["", f"--resume {A}"]


def test_a_result_need_not_repeat_the_session(bot: Bot) -> None:
    """Every field of it but ``is_error`` may be absent."""
    for first, last in ((init(A), {}), (init(A, session_resumable=True), {"session_id": None}), (init(A), {})):
        bot.does(core(first, said("hi"), {"type": "result", "is_error": False, **last}))
        assert bot.send()[-1]["status"] == "ok"
    assert arguments(bot) == ["", f"--resume {A}", f"--resume {A}"]
    bot.does(core(init(A, session_resumable=False), said("hi"), {"type": "result", "is_error": False}))
    assert bot.send()[-1]["status"] == "ok"
    assert uuids(bot) == {}


def test_sessions_of_an_agent_have_sessions_of_core(bot: Bot) -> None:
    bot.send()
    bot.does(core(init(B), said("hi"), result(B)))
    bot.send(session="other")
    assert uuids(bot) == {A: "default", B: "other"}
    assert arguments(bot) == ["", ""]


def test_calls_results_and_what_streams_are_translated(bot: Bot) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "shell", "input": {"cmd": "ls"}}
    returned = {"type": "tool_result", "tool_use_id": "c1", "is_error": True, "content": "no"}
    user = {"type": "user", "session_id": A, "message": {"role": "user", "content": [returned]}}
    bot.does(
        core(init(A), delta("hm", "thinking"), delta("I look"), said("I look", call), user, said("done"), result())
    )
    frames = bot.send()
    assert types(frames) == ["start", "reasoning_delta", "delta", "message", "tool_call", "message", "message", "done"]
    messages, events = bot.log()
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[2]["content"] == [{"type": "tool_result", "tool_call_id": "c1", "content": "no", "is_error": True}]
    assert [event["arguments"] for event in events if event["type"] == "tool_call"] == [{"cmd": "ls"}]


def test_what_core_asks_is_refused(bot: Bot) -> None:
    asks = {"type": "control_request", "request_id": "r1", "request": {"subtype": "can_use_tool", "tool_name": "x"}}
    script = core(init(A), asks, ends="") + 'read -r answer\necho "$answer" > /tmp/user\n'
    bot.does(script + core(said("ok"), result()).split("/tmp/user\n")[1])
    assert bot.send()[-1]["status"] == "ok"
    answer = json.loads((bot.root / "tmp/user").read_text())["response"]
    assert (answer["request_id"], answer["response"]["behavior"]) == ("r1", "deny")


_LOAD = {"session_error_code": "not_found", "session_error_phase": "load"}
_PERSIST = {"session_error_code": "io", "session_error_phase": "persist"}


@pytest.mark.parametrize(
    ("lines", "code", "kept"),
    [
        ((failed("gone", **_LOAD),), "ENOENT", False),
        ((init(A), said("hi"), failed("disk", **_PERSIST)), "EIO", False),
        ((init(A), failed("locked", session_error_code="conflict", session_error_phase="load")), "EAGAIN", True),
        ((init(A), failed("session recovery failed [not_found]: plain text")), "EIO", True),
        ((init(B), said("hi"), result(B)), "ESTALE", False),
        ((init(A), said("hi"), result(B)), "ESTALE", False),
        ((init(A, session_resumable=False), failed("later")), "EIO", False),
        ((init(A), said("hi")), "EIO", True),
        (("garbage",), "EIO", True),
        (("[]",), "EIO", True),
    ],
    ids=[
        "load",
        "persist",
        "conflict",
        "plain text",
        "other id",
        "other id at the end",
        "not resumable",
        "no result",
        "garbage",
        "no object",
    ],
)
def test_a_turn_that_fails_keeps_or_releases_what_it_resumed(bot: Bot, lines: Any, code: str, kept: bool) -> None:
    bot.send()
    bot.does(core(*lines, ends="exit 0\n"))
    error, done = bot.send()[-2:]
    assert (error["code"], done["status"]) == (code, "error")
    assert uuids(bot) == ({A: "default"} if kept else {})


def choose(bot: Bot, id: str) -> None:
    """A person selects a session of core, as docs/agents.md says."""
    path = bot.home / f"session/index/by-uuid/{id}"
    ALICE.does(path.unlink, missing_ok=True)
    ALICE.does(path.write_text, "default\n")


def test_a_session_that_somebody_chose_is_resumed(bot: Bot) -> None:
    bot.send()
    choose(bot, B)
    bot.does(core(init(B), said("hi"), result(B)))
    assert [bot.send()[-1]["status"] for _ in range(2)] == ["ok", "ok"]
    assert arguments(bot) == ["", f"--resume {B}", f"--resume {B}"]


def test_a_session_that_was_left_can_be_chosen_again(bot: Bot) -> None:
    bot.send()
    choose(bot, B)
    choose(bot, A)
    bot.send()
    assert arguments(bot) == ["", f"--resume {A}"]


@pytest.mark.parametrize(
    ("lines", "next"),
    [
        ((failed("gone", B, **_LOAD),), A),
        ((init(B), said("hi"), failed("disk", B, **_PERSIST)), A),
        ((init(A), said("hi"), result(A)), A),
        ((init(B, session_resumable=False), said("hi"), result(B)), A),
        ((failed("no network"),), B),
        ((init(B), said("hi")), B),
    ],
    ids=["load", "persist", "other id", "not resumable", "plain failure", "no result"],
)
def test_a_chosen_session_that_fails_leaves_the_one_before(bot: Bot, lines: Any, next: str) -> None:
    bot.send()
    choose(bot, B)
    bot.does(core(*lines, ends="exit 0\n"))
    bot.send()
    bot.send()
    assert arguments(bot) == ["", f"--resume {B}", f"--resume {next}"]


def test_a_structured_failure_counts_whatever_happens_after_it(bot: Bot) -> None:
    bot.send()
    bot.does(core(failed("gone", **_LOAD), "garbage", ends="kill -9 $$\n"))
    assert bot.send()[-2]["code"] == "ENOENT"
    assert uuids(bot) == {}


def test_a_result_counts_though_core_crashes_after_it(bot: Bot) -> None:
    bot.does(core(init(A), said("hi"), result(), ends="exit 3\n"))
    assert bot.send()[-1]["status"] == "error"
    assert uuids(bot) == {A: "default"}


def test_a_session_that_cannot_be_resumed_is_not_kept(bot: Bot) -> None:
    bot.does(core(init(A, session_resumable=False), said("hi"), result()))
    assert bot.send()[-1]["status"] == "ok"
    assert uuids(bot) == {}


def test_a_cancelled_turn_keeps_what_it_resumed(bot: Bot) -> None:
    bot.send()
    bot.does(core(init(A), delta("hm")))
    with bot.talk() as client:
        client.send(bot.sending(id="c"))
        while client.frame()["type"] != "delta":
            pass
        client.send(b'{"op":"cancel","id":"c"}\n')
        while (frame := client.frame())["type"] != "done":
            pass
    assert frame["status"] == "cancelled"
    assert uuids(bot) == {A: "default"}


def test_lines_of_other_kinds_are_passed_over(bot: Bot) -> None:
    others: list[dict[str, Any]] = [
        {"type": "system", "subtype": "status", "status": "x"},
        {"type": "new"},
        {"type": "stream_event", "event": {}},
    ]
    bot.does(core(init(A), *others, said("hi"), result()))
    assert types(bot.send()) == ["start", "message", "done"]
