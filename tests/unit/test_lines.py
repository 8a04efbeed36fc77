"""The door for lines from outside: spec 1.5 as cases."""

import json
from typing import Any

import pytest

from backend.errors import InvalidValue, ValueTooBig
from backend.line_shapes import EVENTS
from backend.lines import (
    cwd_line,
    foreign_fault,
    foreign_line,
    meta_line,
    parse_cwd,
    parse_line,
    parse_state,
    state_line,
    text_of,
    validate_meta,
)
from backend.marks import Marks
from backend.rows import Line, Stream

USER = {"role": "user", "content": "hi"}
RUN = {"run": "ctx-1"}


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


MESSAGES_ACCEPTED: list[dict[str, Any]] = [
    *({"role": role, "content": ""} for role in ("system", "user", "assistant", "tool")),
    {"role": "user", "content": []},
    {"role": "user", "content": [{"type": "text", "text": ""}]},
    {"role": "user", "content": [{"type": "image", "path": "/a.png"}, {"type": "image", "url": "data:"}]},
    {"role": "tool", "content": [{"type": "tool_result", "tool_call_id": "c", "content": "ok"}]},
    {"role": "tool", "content": [{"type": "tool_result", "tool_call_id": "c", "content": [{"any": "thing"}]}]},
    {"role": "user", "content": [{"type": "hologram", "whatever": 1}]},
    {**USER, "run": "ctx-0123456789abcdef0123456789abcdef", "id": "", "name": "", "tool_call_id": ""},
    {**USER, "tool_calls": []},
    {**USER, "tool_calls": [{"id": "1", "name": "fs.read", "arguments": {}, "more": 1}]},
    {**USER, "meta": {}},
    {**USER, "meta": {"turn": 0, "step": 3, "finish": "stop", "timing": {"firstToken": 0.5, "decode": 3}}},
    {**USER, "meta": {"usage": {"inputTokens": 0, "outputTokens": 1, "totalTokens": 1, "more": "x"}, "more": None}},
    {**USER, "unknown": {"keys": ["are", "kept"]}, "partial": True},
]

NOT_STRINGS: list[Any] = [None, 1, []]
NOT_OBJECTS: list[Any] = [None, [], "x"]
NOT_CALLS: list[Any] = [None, {}, ["x"], [{"id": "1", "name": "x"}]]
NOT_MESSAGES: list[Any] = [None, {}, ["x"], [{}], [{"role": "user"}]]

MESSAGES_REFUSED: list[Any] = [
    {},
    {"role": "user"},
    {"content": "hi"},
    {"role": "User", "content": "hi"},
    {"role": None, "content": "hi"},
    {"role": ["user"], "content": "hi"},
    {"role": "user", "content": None},
    {"role": "user", "content": {}},
    {"role": "user", "content": 1},
    {"role": "user", "content": ["text"]},
    {"role": "user", "content": [{}]},
    {"role": "user", "content": [{"type": 1}]},
    {"role": "user", "content": [{"type": "text"}]},
    {"role": "user", "content": [{"type": "text", "text": None}]},
    {"role": "user", "content": [{"type": "image"}]},
    {"role": "user", "content": [{"type": "image", "path": 1}]},
    {"role": "user", "content": [{"type": "image", "path": "/a", "url": 1}]},
    {"role": "user", "content": [{"type": "tool_result", "content": "ok"}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_call_id": "c"}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_call_id": "c", "content": {}}]},
    {"role": "user", "content": [{"type": "text", "text": "ok"}, {"type": "text"}]},
    *({**USER, "run": run} for run in (None, 1, "", "a b", "a.sock", "a.d", "x" * 65, "é", "-a")),
    *({**USER, key: value} for key in ("id", "name", "tool_call_id") for value in NOT_STRINGS),
    *({**USER, "tool_calls": calls} for calls in NOT_CALLS),
    {**USER, "tool_calls": [{"id": 1, "name": "x", "arguments": {}}]},
    {**USER, "tool_calls": [{"id": "1", "name": "x", "arguments": "{}"}]},
    *({**USER, "meta": meta} for meta in NOT_OBJECTS),
    *({**USER, "meta": {"turn": turn}} for turn in (-1, True, 1.0, "1", None)),
    {**USER, "meta": {"step": -1}},
    {**USER, "meta": {"finish": 1}},
    {**USER, "meta": {"usage": []}},
    {**USER, "meta": {"usage": {"inputTokens": True}}},
    {**USER, "meta": {"timing": {"decode": "1"}}},
    {**USER, "meta": {"timing": {"decode": True}}},
    [USER],
    "x",
    1,
    None,
]

CUT: dict[str, Any] = {"type": "cut", "before": 0, "summary": [USER], "reason": "manual"}
START: dict[str, Any] = {"type": "start", "id": "ctx-1", **RUN, "client_id": "m-1", "scope": "private", "cwd": "/w"}
META = {"client": "ctx", "model": "debug/echo", "scope": "private"}

EVENTS_ACCEPTED: list[dict[str, Any]] = [
    START,
    START | {"cwd": None, "scope": "shared", "more": 1},
    {"type": "delta", **RUN, "text": ""},
    {"type": "reasoning_delta", **RUN, "text": "x"},
    {"type": "message", **RUN, **USER},
    {"type": "reasoning_message", **RUN, "role": "assistant", "content": []},
    {"type": "tool_call", **RUN, "id": "c", "name": "fs.read", "arguments": {}},
    {"type": "tool_result", **RUN, "tool_call_id": "c", "content": "x"},
    {"type": "tool_result", **RUN, "tool_call_id": "c", "content": []},
    {"type": "usage", **RUN, "input_tokens": 0, "output_tokens": 2**63},
    {"type": "error", **RUN, "code": "EHOSTDOWN", "message": ""},
    *({"type": "done", **RUN, "status": status} for status in ("ok", "error", "cancelled")),
    {"type": "state", "from": "idle", "state": "active"},
    {"type": "cwd", "cwd": "/"},
    {"type": "cwd", "cwd": "/a/é b"},
    {"type": "meta", "meta": {}},
    {"type": "meta", "meta": META | {"more": [1]}},
    {"type": "mark", "name": "turn-skip", "data": {"reason": "x", "turn": 1}},
    {"type": "mark", "name": "prompt", "data": {"header": {}, "turn": 0, "step": 0, "reason": "x", "sources": []}},
    CUT,
    CUT | {"summary": [], "native": None, "meta": {"any": 1}},
    {"type": "checkpoint", "workspace": "/w", "snapshot": "s1"},
]

EVENTS_REFUSED: list[Any] = [
    {},
    USER,
    *({"type": kind} for kind in (None, 1, "", "Delta", "agent.stop", "unknown")),
    START | {"id": "ctx-2"},
    *(START | {"cwd": cwd} for cwd in ("", "work", "/work/", "/a/../b", "/a\nb", 1)),
    START | {"scope": "public"},
    START | {"client_id": None},
    *({"type": "delta", "text": "x", "run": run} for run in (None, "", "a/b", 1)),
    {"type": "delta", **RUN, "text": 1},
    {"type": "message", **RUN, "role": "nobody", "content": ""},
    {"type": "message", **RUN, "role": "user", "content": [{"type": "text"}]},
    {"type": "tool_call", **RUN, "id": "c", "name": "n", "arguments": []},
    {"type": "tool_result", **RUN, "tool_call_id": "c", "content": {}},
    *({"type": "usage", **RUN, "input_tokens": n, "output_tokens": 0} for n in (-1, True, 1.5, "1", None)),
    *({"type": "error", **RUN, "message": "m", "code": code} for code in ("EWHAT", "", 5, "errorcode", None)),
    {"type": "done", **RUN, "status": "fine"},
    {"type": "state", "state": "active"},
    {"type": "state", "from": "idle", "state": "running"},
    {"type": "state", "from": "running", "state": "idle"},
    *({"type": "cwd", "cwd": cwd} for cwd in (None, "", "a", "/a/", "//", "/a//b", "/./a", "/..", "/\x7f", "/\0")),
    {"type": "meta", "meta": []},
    *({"type": "meta", "meta": {"client": client}} for client in (None, 1)),
    *({"type": "meta", "meta": {"model": model}} for model in ("", "a/b/c", "a b", None)),
    {"type": "meta", "meta": {"scope": "shared"}},
    {"type": "meta", "meta": {"x": "y" * 65536}},
    {"type": "mark", "name": "undefined", "data": {}},
    {"type": "mark", "name": "turn-skip", "data": {}},
    {"type": "mark", "name": "turn-skip", "data": "x"},
    {"type": "mark", "name": "turn-skip"},
    {"type": "mark", "name": "delta", "data": {**RUN, "text": "x"}},
    *(CUT | {"before": before} for before in (-1, True, 0.0, "0", None)),
    *(CUT | {"summary": summary} for summary in NOT_MESSAGES),
    CUT | {"reason": None},
    {"type": "checkpoint", "workspace": "/w"},
    [START],
]


@pytest.mark.parametrize("value", MESSAGES_ACCEPTED, ids=str)
def test_a_valid_message_keeps_its_bytes(value: dict[str, Any]) -> None:
    line = parse_line("messages", dumped(value), scope="private")
    assert (line.stream, line.raw, line.kind, line.key) == ("messages", dumped(value), "message", value["role"])
    assert (line.state, line.cwd, line.meta) == (None, None, None)


@pytest.mark.parametrize("value", MESSAGES_REFUSED, ids=str)
def test_an_invalid_message_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValue):
        parse_line("messages", dumped(value), scope="private")


@pytest.mark.parametrize("value", EVENTS_ACCEPTED, ids=str)
def test_a_valid_event_keeps_its_bytes(value: dict[str, Any]) -> None:
    line = parse_line("events", dumped(value), scope="private")
    assert (line.stream, line.raw, line.latest_size) == ("events", dumped(value), None)
    assert line.kind == ("cut" if value["type"] == "cut" else "mark")


@pytest.mark.parametrize("value", EVENTS_REFUSED, ids=str)
def test_an_invalid_event_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValue):
        parse_line("events", dumped(value), scope="private")


@pytest.mark.parametrize("kind", EVENTS)
def test_each_field_an_event_needs_is_needed(kind: str) -> None:
    valid = next(value for value in EVENTS_ACCEPTED if value["type"] == kind)
    for field in EVENTS[kind].needs:
        with pytest.raises(InvalidValue):
            parse_line("events", dumped({key: item for key, item in valid.items() if key != field}))


def test_a_refusal_never_quotes_content() -> None:
    for stream, value in (
        ("messages", {"role": "sEcReT", "content": "x"}),
        ("events", {"type": "sEcReT"}),
        ("events", {"type": "mark", "name": "sEcReT", "data": {}}),
        ("messages", {**USER, "run": "sEcReT!"}),
    ):
        with pytest.raises(InvalidValue) as caught:
            parse_line(stream, dumped(value))  # type: ignore[arg-type]
        assert "sEcReT" not in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hi", "hi"),
        ("", ""),
        ("two\nlines", "two\nlines"),
        ([], ""),
        ([{"type": "text", "text": "é"}, {"type": "image", "url": "x"}, {"type": "text", "text": "b"}], "éb"),
        ([{"type": "text", "text": ""}], ""),
        ([{"type": "note", "text": "no"}], ""),
    ],
)
def test_the_text_of_an_assistant_message(content: Any, text: str) -> None:
    raw = dumped({"role": "assistant", "content": content})
    assert text_of(raw) == text
    assert parse_line("messages", raw).latest_size == (len(text.encode()) + 1 if text else None)


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_only_an_assistant_s_text_is_the_latest(role: str) -> None:
    assert parse_line("messages", dumped({"role": role, "content": "hi"})).latest_size is None


@pytest.mark.parametrize(
    ("event", "facts"),
    [
        ({"type": "state", "from": "idle", "state": "error"}, ("error", None, None)),
        ({"type": "cwd", "cwd": "/w"}, (None, "/w", None)),
        (START, (None, "/w", None)),
        (START | {"cwd": None}, (None, None, None)),
        ({"type": "meta", "meta": {"z": "é", "client": "c"}}, (None, None, '{"client":"c","z":"é"}')),
        ({"type": "checkpoint", "workspace": "/w", "snapshot": "s"}, (None, None, None)),
    ],
)
def test_what_an_event_records(event: dict[str, Any], facts: tuple[str | None, ...]) -> None:
    line = parse_line("events", dumped(event))
    assert (line.state, line.cwd, line.meta) == facts


def test_the_scope_of_a_meta_event_must_be_the_session_s() -> None:
    raw = dumped({"type": "meta", "meta": {"scope": "shared"}})
    assert parse_line("events", raw, scope=None)
    assert parse_line("events", raw, scope="shared")
    with pytest.raises(InvalidValue):
        parse_line("events", raw, scope="private")


def test_a_cut_says_where_its_bound_is() -> None:
    assert parse_line("events", dumped(CUT | {"before": 7})).before == 7


def test_a_defined_mark_is_judged_by_its_schema() -> None:
    marks = Marks()
    marks.define("demo/x", {"k": "string", "n": "number", "b": "boolean"})
    good = {"k": "v", "n": 1.5, "b": True}
    for data, holds in ((good, True), (good | {"n": True}, False), (good | {"k": 3}, False), ({"k": "v"}, False)):
        raw = dumped({"type": "mark", "name": "demo/x", "data": data})
        if holds:
            assert parse_line("events", raw, marks=marks).key == "demo/x"
        else:
            with pytest.raises(InvalidValue):
                parse_line("events", raw, marks=marks)


@pytest.mark.parametrize(
    ("line", "raw"),
    [
        (state_line("idle", "active"), b'{"from":"idle","state":"active","type":"state"}'),
        (cwd_line("/é"), '{"cwd":"/é","type":"cwd"}'.encode()),
        (meta_line({"scope": "private", "client": "x"}), b'{"meta":{"client":"x","scope":"private"},"type":"meta"}'),
    ],
)
def test_a_line_made_here_is_compact_sorted_and_valid(line: Line, raw: bytes) -> None:
    assert line.raw == raw
    assert parse_line("events", raw) == line


@pytest.mark.parametrize("content", [b"idle", b"idle\n", b"active\n", b"done", b"error\n"])
def test_a_state_is_one_of_four(content: bytes) -> None:
    assert parse_state(content) == content.decode().strip()


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"running\n", b"idle\n\n", b"idle\nidle\n", b" idle", b"\xff", b"idle\0"]
)
def test_no_other_word_is_a_state(content: bytes) -> None:
    with pytest.raises(InvalidValue):
        parse_state(content)


def test_a_cwd_is_a_stable_path() -> None:
    assert parse_cwd("/wörk\n".encode()) == "/wörk"
    for content in (b"", b"\n", b"work\n", b"/a/\n", b"/a\n\n", b"/a\nb", b"/\xff"):
        with pytest.raises(InvalidValue):
            parse_cwd(content)


def test_meta_is_one_object_of_at_most_64_kibibytes() -> None:
    pretty = json.dumps(META, indent=2).encode() + b"\n"
    assert validate_meta(pretty, "private") == META
    assert validate_meta(b"{}", "private") == {}
    room = 65536 - len(b'{"k":""}')
    assert validate_meta(b'{"k":"' + b"x" * room + b'"}', "private")
    with pytest.raises(ValueTooBig):
        validate_meta(b'{"k":"' + b"x" * (room + 1) + b'"}', "private")
    for content in (b"", b"[]", b"{}{}", b'{"client":1}', b'{"model":"a b"}', b'{"scope":"shared"}', b'{"a":1,"a":1}'):
        with pytest.raises(InvalidValue):
            validate_meta(content, "private")


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"", "blank"),
        (b" \t", "blank"),
        (b'{"a":"\xff"}', "UTF-8"),
        (b"garbage", "object"),
        (b"[]", "object"),
        (b'{"a":1', "object"),
        (b'{"a":NaN}', "object"),
        (b'{"a":' + b"[" * 100_000, "object"),
        (b'{"a":"' + b"x" * (16 << 20) + b'"}', "16 MiB"),
        (b"{}", None),
        (b'{"a":1,"a":2}\r', None),
        (b'{"type":"agent.stop"}', None),
        (b'{"a":"\\ud800 \\u0000"}', None),
        (b'{"a":' + b"9" * 5000 + b"}", None),
        (b'{"role":"user","content":"' + b"x" * (2 << 20) + b'"}', None),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_makes_a_foreign_line_malformed(raw: bytes, fault: str | None) -> None:
    found = foreign_fault(raw)
    assert found is None if fault is None else fault in str(found)


@pytest.mark.parametrize(
    ("stream", "raw", "expected"),
    [
        ("messages", b'{"role":"robot","content":5}', Line("messages", b"", "message", "robot")),
        ("messages", b'{"content":"no role"}', Line("messages", b"", "message", "")),
        ("messages", b'{"role":"assistant","content":"\\ud800"}', Line("messages", b"", "message", "assistant", 7)),
        ("messages", b"garbage", Line("messages", b"", "mark", "")),
        ("events", b'{"type":"agent.stop"}', Line("events", b"", "mark", "agent.stop")),
        ("events", b'{"no":"type"}', Line("events", b"", "mark", "")),
        ("events", b'{"type":"state","state":"cancelled"}', Line("events", b"", "mark", "state")),
        ("events", b'{"type":"start","cwd":"/w"}', Line("events", b"", "mark", "start", cwd="/w")),
        ("events", b'{"type":"cut"}', Line("events", b"", "cut", "cut")),
    ],
)
def test_a_foreign_line_is_served_as_it_is(stream: Stream, raw: bytes, expected: Line) -> None:
    line = foreign_line(stream, raw)
    assert line.raw == raw
    for field in ("stream", "kind", "key", "latest_size", "state", "cwd", "meta", "before"):
        assert getattr(line, field) == getattr(expected, field), field


def test_escaped_text_is_utf8() -> None:
    assert text_of(b'{"role":"assistant","content":"a\\ud800b\\u0000"}') == "a\\ud800b\\u0000"
