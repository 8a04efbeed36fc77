"""A log as a conversation (spec 4.1): whose turn it is, which result belongs to which call, and nothing twice."""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mountctl.conversation import Call, Conversation, Index, Media, Notice, Part, Result, Text, Thought, Tokens, Turn
from mountctl.entries import LogFile

Opened = Callable[..., LogFile]

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., LogFile]]:
    """A log.jsonl that has these messages and events, a second apart."""
    with contextlib.ExitStack() as stack:

        def opened(*lines: dict[str, Any]) -> LogFile:
            (tmp_path / "context").mkdir()
            (tmp_path / "context/log.jsonl").write_text("".join(_entries(lines)))
            return stack.enter_context(LogFile(str(tmp_path)))

        yield opened


def _entries(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    for n, line in enumerate(lines):
        entry: dict[str, Any] = {"n": n, "time": int(START.timestamp() + n) * 1000}
        if "role" in line:
            entry |= {"kind": "message", "message": line}
        elif line["type"] == "cut":
            entry |= {"kind": "cut", "data": {key: line[key] for key in line if key != "type"}}
        else:
            data = {key: line[key] for key in line if key != "type"}
            entry |= {"kind": "mark", "name": line["type"], "data": data}
        yield json.dumps(entry) + "\n"


def call(run: str, call_id: str, name: str = "f") -> dict[str, Any]:
    return {"type": "tool_call", "run": run, "id": call_id, "name": name, "arguments": {}}


def result(run: str, call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    part = {"type": "tool_result", "tool_call_id": call_id, "content": content, **more}
    return {"role": "tool", "run": run, "content": [part]}


def answer(*parts: Part, failed: bool = False) -> Result:
    return Result(list(parts), failed)


NAMED = [{"id": "c", "name": "f", "arguments": {"a": 1}}]

CASES: dict[str, tuple[list[dict[str, Any]], list[tuple[int, str, Sequence[Part]]]]] = {
    "texts, thoughts, media": (
        [
            {"role": "user", "content": "a"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "b"},
                    {"type": "text", "text": "c"},
                    {"type": "image", "url": "u", "path": "p"},
                    {"type": "blob", "path": "data/blob/x"},
                    {"type": "odd"},
                ],
            },
        ],
        [
            (0, "user", [Text("a")]),
            (
                1,
                "assistant",
                [Thought("b"), Text("c"), Media("image", "u"), Media("blob", "data/blob/x"), Media("odd", "")],
            ),
        ],
    ),
    "a call has its result beside it, and the result no turn of its own": (
        [call("r", "c", "g"), result("r", "c", "x"), {"role": "assistant", "content": "done", "run": "r"}],
        [(0, "tool", [Call("g", {}, answer(Text("x")))]), (2, "assistant", [Text("done")])],
    ),
    "two calls at once": (
        [call("r", "c"), call("r", "d"), result("r", "d", "y", is_error=True), result("r", "c", "x")],
        [
            (0, "tool", [Call("f", {}, answer(Text("x")))]),
            (1, "tool", [Call("f", {}, answer(Text("y"), failed=True))]),
        ],
    ),
    "a result before its call": (
        [result("r", "c", "x"), call("r", "c")],
        [(1, "tool", [Call("f", {}, answer(Text("x")))])],
    ),
    "the same id in another run, and again in the same": (
        [call("r", "c"), call("q", "c"), call("r", "c"), result("r", "c", "1"), result("r", "c", "2")],
        [
            (0, "tool", [Call("f", {}, answer(Text("1")))]),
            (1, "tool", [Call("f", {}, None)]),
            (2, "tool", [Call("f", {}, answer(Text("2")))]),
        ],
    ),
    "results of no call are shown by themselves": (
        [call("r", "c"), result("r", "c", "x"), result("r", "c", "y"), result("r", "d", "z")],
        [
            (0, "tool", [Call("f", {}, answer(Text("x")))]),
            (2, "tool", [answer(Text("y"))]),
            (3, "tool", [answer(Text("z"))]),
        ],
    ),
    "calls that a message names": (
        [
            {"role": "assistant", "content": "a", "tool_calls": NAMED},
            {"role": "tool", "tool_call_id": "c", "content": "x"},
        ],
        [(0, "assistant", [Text("a"), Call("f", {"a": 1}, answer(Text("x")))])],
    ),
    "are shown once if they are events too": (
        [{"role": "assistant", "content": "a", "run": "r", "tool_calls": NAMED}, call("r", "c"), result("r", "c", "x")],
        [(0, "assistant", [Text("a")]), (1, "tool", [Call("f", {}, answer(Text("x")))])],
    ),
    "what a tool message says besides": (
        [{"role": "tool", "content": "text"}, {"role": "tool", "content": []}],
        [(0, "tool", [Text("text")])],
    ),
    "a result that is an event": (
        [call("r", "c"), {"type": "tool_result", "run": "r", "tool_call_id": "c", "content": "x"}],
        [(0, "tool", [Call("f", {}, answer(Text("x")))])],
    ),
    "most events are nothing to see": (
        [
            {"type": "start", "run": "r", "id": "r"},
            {"type": "done", "run": "r", "status": "ok"},
            {"type": "mark", "a": 1},
        ],
        [],
    ),
}


@pytest.mark.parametrize(("lines", "expected"), CASES.values(), ids=CASES)
def test_the_turns_of_a_log(
    opened: Opened, lines: list[dict[str, Any]], expected: list[tuple[int, str, Sequence[Part]]]
) -> None:
    found = [turn for turn in Conversation(opened(*lines)) if isinstance(turn, Turn)]
    assert [(turn.n, turn.role, turn.parts) for turn in found] == expected
    assert [turn.moment for turn in found] == [START + timedelta(seconds=turn.n) for turn in found]


def test_what_went_wrong_and_what_was_compacted_are_notices(opened: Opened) -> None:
    lines: list[dict[str, Any]] = [
        {"type": "error", "run": "r", "code": "EIO", "message": "died"},
        {"type": "done", "run": "r", "status": "cancelled"},
        {"type": "cut", "before": 2, "summary": [{"role": "user", "content": "all"}], "reason": "long"},
        {"type": "checkpoint", "workspace": "/w", "snapshot": "s1"},
    ]
    found = [item for item in Conversation(opened(*lines)) if isinstance(item, Notice)]
    assert [(notice.kind, notice.text) for notice in found] == [
        ("error", "EIO: died"),
        ("done", "the run ended: cancelled"),
        ("cut", "long"),
        ("checkpoint", "snapshot s1 of /w"),
    ]
    assert found[2].turns == [Turn(2, None, "user", [Text("all")])]


def test_an_index_counts_what_it_was_led_through(opened: Opened) -> None:
    index = Index(
        opened(
            {"role": "user", "content": "\nfirst\nsecond"},
            {"type": "usage", "run": "r", "input_tokens": 3, "output_tokens": 1},
            {"type": "usage", "run": "r", "input_tokens": 4, "output_tokens": 1},
            {"role": "user", "content": [{"type": "image", "path": "x"}]},
            {"role": "user", "content": "y" * 200},
        )
    )
    assert [index.look_on() for _ in range(6)] == [True] * 5 + [False]
    assert (index.entries, index.tokens) == (5, Tokens(7, 2))
    assert index.questions == [(0, "first"), (4, "y" * 100)]


def test_turns_come_before_the_log_was_read_to_its_end(opened: Opened) -> None:
    tail: list[dict[str, Any]] = [{"role": "user", "content": "later"}] * 50
    conversation = Conversation(opened(call("r", "c"), result("r", "c", "x"), *tail))
    first = next(iter(conversation))
    assert isinstance(first, Turn) and first.parts == [Call("f", {}, answer(Text("x")))]
    assert conversation.index.entries == 2


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        ("2020-02-03T04:05:06Z", datetime(2020, 2, 3, 4, 5, 6, tzinfo=UTC)),
        ("2020-02-03T04:05:06.5+01:00", datetime(2020, 2, 3, 3, 5, 6, 500_000, tzinfo=UTC)),
        ("yesterday", None),
        ("0001-01-01T00:00:00Z", None),
        ("9999-12-31T23:59:59Z", None),
        (7, START),
    ],
)
def test_the_time_of_an_imported_line_is_its_own(opened: Opened, timestamp: Any, expected: datetime | None) -> None:
    (turn,) = Conversation(opened({"role": "user", "content": "a", "timestamp": timestamp}))
    assert turn.moment == expected


def test_what_is_appended_while_it_is_read_is_not_of_it(opened: Opened, tmp_path: Path) -> None:
    found = opened({"role": "user", "content": "a"})
    with (tmp_path / "context/log.jsonl").open("a") as file:
        file.write('{"n":1,"time":0,"kind":"message","message":{"role":"user","content":"b"}}\n')
    assert len(list(Conversation(found))) == len(list(Conversation(found))) == 1
