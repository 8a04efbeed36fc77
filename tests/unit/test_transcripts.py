"""Foreign transcripts become valid lines, the same ones every time (spec 4.2, import)."""

import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.lines import parse_line
from backend.names import is_session_name
from backend.strict_json import MAX_LINE
from backend.transcripts import claude_code, jsonl, records
from backend.transcripts.records import Child, Converted, Identity, Record, Unreadable

UUID = "0b5f6f0e-4c1d-4a57-9a0a-3d1f1a2b3c4d"


def lines(*values: object) -> bytes:
    """A file of JSON lines; bytes stand for themselves."""
    return b"".join((value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n" for value in values)


def claude(*values: object) -> list[Converted | Unreadable]:
    return read(claude_code, *values)


def said(found: Sequence[Record]) -> list[tuple[str, Any]]:
    """Stream and value of each converted line."""
    return [(one.stream, json.loads(one.raw)) for one in found if isinstance(one, Converted)]


def read(form: Any, *values: object) -> list[Converted | Unreadable]:
    """What a format makes of a file of one session."""
    found = list(form.convert(io.BytesIO(lines(*values)), "private"))
    assert all(not isinstance(one, Child) for one in found)
    return found


def user(content: object, **more: object) -> dict[str, object]:
    return {"type": "user", "sessionId": UUID, "uuid": "u", "message": {"role": "user", "content": content}, **more}


def assistant(*content: object, **message: object) -> dict[str, object]:
    return {
        "type": "assistant",
        "sessionId": UUID,
        "uuid": "a",
        "message": {"role": "assistant", "content": list(content), **message},
    }


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


CALL = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "file\n", "is_error": False}


def test_jsonl_lines_keep_their_bytes() -> None:
    raw = b'{ "role":"user",  "content":"\\u00e9", "x":1 }'
    assert list(jsonl.convert(io.BytesIO(raw + b"\r\n"), "private")) == [Converted(1, "messages", raw)]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[1]", "JSON"),
        (b'{"role":"user"}', "content"),
        (b'{"role":"boss","content":""}', "role"),
        (b'{"role":"user","content":"\\u0000"}', "NUL"),
        (b'{"role":"user","content":"\\ud800"}', "JSON"),
        (b'{"role":"user","content":"\xff"}', "JSON"),
    ],
)
def test_a_bad_jsonl_line_has_its_number_and_a_reason(bad: bytes, reason: str) -> None:
    good = {"role": "user", "content": "x"}
    found = read(jsonl, good, bad, good)
    assert [type(record) for record in found] == [Converted, Unreadable, Converted]
    assert isinstance(found[1], Unreadable) and found[1].number == 2 and reason in found[1].reason


def test_a_last_line_without_newline_counts() -> None:
    (record,) = jsonl.convert(io.BytesIO(b'{"role":"user","content":"x"}'), "private")
    assert isinstance(record, Converted) and record.number == 1


def test_a_conversation_becomes_messages_calls_results_and_usage() -> None:
    found = said(
        claude(
            user("list it", cwd="/w", timestamp="2026-01-01T00:00:00Z"),
            assistant(text("Looking."), CALL, id="m1", model="model-1", usage={"input_tokens": 5, "output_tokens": 7}),
            user([RESULT]),
            assistant(text("One file."), id="m2", model="model-1", usage={"input_tokens": 9, "output_tokens": 2}),
        )
    )
    run = found[1][1]["run"]
    assert [(stream, value.get("type") or value.get("role")) for stream, value in found] == [
        ("events", "cwd"),
        ("messages", "user"),
        ("events", "meta"),
        ("messages", "assistant"),
        ("events", "tool_call"),
        ("messages", "tool"),
        ("events", "usage"),
        ("messages", "assistant"),
        ("events", "usage"),
    ]
    assert {value["run"] for _, value in found if value.get("type") not in ("cwd", "meta")} == {run}
    assert found[1][1]["timestamp"] == "2026-01-01T00:00:00Z"
    assert (found[2][1]["meta"]["model"], found[2][1]["meta"]["client"]) == ("model-1", "claude-code")
    assert (found[4][1]["name"], found[4][1]["arguments"]) == ("Bash", {"command": "ls"})
    assert found[5][1]["content"] == [{"type": "tool_result", "tool_call_id": "t1", "content": "file\n"}]
    assert (found[5][1]["name"], found[6][1]["input_tokens"], found[6][1]["output_tokens"]) == ("Bash", 5, 7)


def test_each_turn_has_a_run_of_its_own_and_a_result_has_its_call_s() -> None:
    found = said(claude(user("a"), assistant(CALL), user("b", uuid="u2"), user([RESULT], uuid="u3")))
    runs = {value["role"] + str(value["content"])[:1]: value["run"] for stream, value in found if stream == "messages"}
    calls = [value["run"] for stream, value in found if stream == "events"]
    assert len(set(runs.values())) == 2
    assert [value["run"] for _, value in found if value.get("role") == "tool"] == calls


def test_usage_of_a_response_in_several_lines_counts_once() -> None:
    usage = [{"input_tokens": 5, "output_tokens": count} for count in (1, 8)]
    found = said(
        claude(user("a"), assistant(text("x"), id="m", usage=usage[0]), assistant(CALL, id="m", usage=usage[1]))
    )
    assert [value["output_tokens"] for _, value in found if value.get("type") == "usage"] == [8]


@pytest.mark.parametrize(
    "other",
    [
        {"type": "summary", "summary": "s", "leafUuid": "x"},
        {"type": "file-history-snapshot", "snapshot": {}},
        {"type": "system", "content": "compacted"},
        {},
    ],
)
def test_what_is_no_part_of_the_conversation_gives_nothing(other: dict[str, object]) -> None:
    assert claude(other) == []


@pytest.mark.parametrize(
    "bad",
    [
        b"{",
        b"\xff\xfe",
        b"",
        {"type": "user", "message": "x"},
        {"type": "user"},
        user(5),
        user([5]),
        user([{"text": "no type"}]),
        assistant({"type": "tool_use", "id": "x", "name": "y"}),
        assistant({"type": "text"}),
    ],
)
def test_a_damaged_line_is_reported_and_the_rest_is_read(bad: object) -> None:
    found = claude(user("before"), bad, user("after"))
    assert [type(record) for record in found] == [Converted, Unreadable, Converted]
    assert found[1].number == 2


def test_thinking_becomes_reasoning_with_its_signature() -> None:
    thought = {"type": "thinking", "thinking": "Hm. 思考 🤔", "signature": "c2ln"}
    found = said(claude(user("go"), assistant(thought, text("Done."), {"type": "redacted_thinking", "data": "eA=="})))
    assert [(stream, value["content"]) for stream, value in found] == [
        ("messages", "go"),
        ("events", [text("Hm. 思考 🤔")]),
        ("events", [{"type": "redacted_thinking", "data": "eA=="}]),
        ("messages", [text("Done.")]),
    ]
    assert (found[1][1]["type"], found[1][1]["signature"]) == ("reasoning_message", "c2ln")


def test_a_result_before_its_call_is_of_the_same_run_and_has_no_name() -> None:
    (_, message), (_, result), (_, call) = said(claude(user("go"), user([RESULT], uuid="u2"), assistant(CALL)))
    assert (result["run"], call["run"], "name" in result) == (message["run"], message["run"], False)


def test_what_an_api_error_used_is_no_usage() -> None:
    failed = assistant(text("Overloaded"), usage={"input_tokens": 0, "output_tokens": 0}) | {"isApiErrorMessage": True}
    assert [stream for stream, _ in said(claude(user("go"), failed))] == ["messages", "messages"]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-01-01T00:00:00Z", 1767225600000),
        ("2026-01-01T00:00:00.123Z", 1767225600123),
        ("2026-01-01T02:00:00+02:00", 1767225600000),
        ("2026-01-01T00:00:00", 1767225600000),
        ("1960-01-01T00:00:00Z", None),
        ("yesterday", None),
        (5, None),
        (None, None),
    ],
)
def test_times(text: object, ms: int | None) -> None:
    (record,) = claude(user("x", timestamp=text))
    assert isinstance(record, Converted) and record.time == ms


def test_an_image_becomes_a_url() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    ((_, message),) = said(claude(user([{"type": "image", "source": source}])))
    assert message["content"] == [{"type": "image", "url": "data:image/png;base64,aGk="}]


BIG = "é" * MAX_LINE


@pytest.mark.parametrize(
    ("values", "restored"),
    [
        ((user([text("small"), text(BIG)]),), text(BIG)),
        ((user(BIG),), text(BIG)),
        ((user([{**RESULT, "content": BIG}]),), text(BIG)),
        ((assistant({**CALL, "input": {"content": BIG}}),), {"content": BIG}),
    ],
)
def test_what_exceeds_a_line_goes_into_a_blob_that_holds_it_as_json(
    values: tuple[object, ...], restored: object
) -> None:
    (record,) = claude(*values)
    assert isinstance(record, Converted)
    (blob,) = record.blobs
    assert len(record.raw) < MAX_LINE
    assert json.loads(blob.content) == restored
    assert json.dumps(f"data/blob/{blob.sha256}").encode() in record.raw


def test_a_result_in_a_blob_is_still_paired() -> None:
    (record,) = claude(user([{**RESULT, "content": BIG}]))
    assert isinstance(record, Converted)
    assert json.loads(record.raw)["content"][0]["tool_call_id"] == "t1"


def test_a_source_line_that_is_too_long_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_SOURCE_LINE", 100)
    found = claude(user("x" * 200), {"type": "summary"}, user("y" * 200))
    assert [(type(record), record.number) for record in found] == [(Unreadable, 1), (Unreadable, 3)]


@pytest.mark.parametrize(
    ("stem", "content", "expected"),
    [
        (UUID, lines(user("x")), Identity(UUID, UUID)),
        ("mine", lines({"type": "summary"}, user("x")), Identity(UUID, UUID)),
        ("mine", lines({"sessionId": "not a uuid"}), Identity("not-a-uuid+85ef961a")),
        ("agent-1", lines({"sessionId": UUID, "isSidechain": True}), Identity("agent-1", parent=UUID)),
        ("mine", lines(b"{", {}), Identity("mine")),
    ],
)
def test_a_claude_code_session_is_called_after_its_id(stem: str, content: bytes, expected: Identity) -> None:
    assert claude_code.identify(io.BytesIO(content), stem) == expected


SAME_SLUG = ["a/b", "a_b", "a b", "a-b", "a\\b", "a\nb", " a b", "caf\u00e9", "cafe\u0301", "..", "", "index", "x.d"]


def test_texts_of_one_slug_give_different_names() -> None:
    names = [records.session_name(text) for text in SAME_SLUG]
    assert len(set(names)) == len(SAME_SLUG) and all(map(is_session_name, names))


@given(st.text(max_size=100))
def test_any_text_gives_a_session_name(name: str) -> None:
    given_name = records.session_name(name)
    assert is_session_name(given_name)
    assert records.session_name(given_name) == given_name


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)
PART = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "image", "thinking", "odd"])},
    optional=dict.fromkeys(("text", "id", "name", "input", "tool_use_id", "content", "source", "thinking"), JSON),
)
LINE = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "summary"])},
    optional={
        "message": st.fixed_dictionaries(
            {"content": st.text(max_size=5) | st.lists(PART, max_size=3)},
            optional=dict.fromkeys(("role", "model", "usage", "id"), JSON),
        ),
        **dict.fromkeys(("cwd", "sessionId", "uuid", "timestamp", "isSidechain"), JSON),
    },
)


@given(st.lists(LINE | st.binary(max_size=20).filter(lambda raw: b"\n" not in raw), max_size=6))
def test_whatever_a_file_holds_every_line_given_is_valid(values: list[Any]) -> None:
    for convert in (claude_code.convert, jsonl.convert):
        for record in convert(io.BytesIO(lines(*values)), "private"):
            if isinstance(record, Converted):
                parse_line(record.stream, record.raw, scope="private")


@given(st.lists(LINE, max_size=6), st.integers(0, 6))
def test_a_file_that_has_grown_gives_the_old_messages_first(values: list[Any], cut: int) -> None:
    before, after = (messages(claude_code.convert, values[:count]) for count in (cut, len(values)))
    assert after[: len(before)] == before


def messages(convert: Callable[[io.BytesIO, str], Any], values: list[Any]) -> list[bytes]:
    found = convert(io.BytesIO(lines(*values)), "private")
    return [one.raw for one in found if isinstance(one, Converted) and one.stream == "messages"]


@pytest.mark.parametrize(
    ("content", "stored"),
    [
        ("a\0b", "a\ufffdb"),
        ("cut \ud83d", "cut \ufffd"),
        ("\ude00\ud83d\U0001f600", "\ufffd\ufffd\U0001f600"),
        ("\\u0000 \\\\ud800", "\\u0000 \\\\ud800"),
    ],
)
def test_what_no_line_may_hold_is_replaced(content: str, stored: str) -> None:
    [line] = claude(user(content))
    assert isinstance(line, Converted)
    assert (json.loads(line.raw)["content"], line.replaced) == (stored, stored != content)


@pytest.mark.parametrize(
    ("lines", "cuts"),
    [
        (("title", "one", "two"), [0]),
        (("one", "title"), []),
        (("one", "title", "two"), [1]),
        (("one", "title", "title", "two", "title"), [1, 2]),
    ],
)
def test_a_summary_is_a_cut_where_the_conversation_goes_on_after_it(lines: Sequence[str], cuts: list[int]) -> None:
    records: list[object] = []
    last = None
    for line in lines:
        if line == "title":
            records.append({"type": "summary", "summary": "A title", "leafUuid": last})
        else:
            records.append(user(line) | {"uuid": line, "parentUuid": last})
            last = line
    values = [json.loads(record.raw) for record in claude(*records) if isinstance(record, Converted)]
    assert [value["before"] for value in values if value.get("type") == "cut"] == cuts
