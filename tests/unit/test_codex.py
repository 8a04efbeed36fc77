"""Codex's rollout files, in both forms, as lines of sessions (spec 4.2, import)."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.lines import parse_line
from backend.transcripts import codex
from backend.transcripts.records import Child, Converted, Identity, Unreadable

ID = "0199a213-81c0-7800-8aa1-bbab2a035a53"
PARENT = "0199a213-81c0-7800-8aa1-000000000001"
STAMP = "2026-03-01T10:00:00.250Z"
MS = 1772359200250

Said = list[tuple[str, dict[str, Any]]]


def file(*values: object) -> io.BytesIO:
    return io.BytesIO(b"".join((v if isinstance(v, bytes) else json.dumps(v).encode()) + b"\n" for v in values))


def wrapped(kind: str, payload: object) -> dict[str, object]:
    return {"timestamp": STAMP, "type": kind, "payload": payload}


def item(payload: object) -> dict[str, object]:
    return wrapped("response_item", payload)


def event(kind: str, **fields: object) -> dict[str, object]:
    return wrapped("event_msg", {"type": kind, **fields})


def message(role: str, text: str, kind: str = "input_text") -> dict[str, object]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def call(call_id: str, arguments: str = '{"cmd":"ls"}') -> dict[str, object]:
    return {"type": "function_call", "name": "shell", "arguments": arguments, "call_id": call_id}


def output(call_id: str, said: object) -> dict[str, object]:
    return {"type": "function_call_output", "call_id": call_id, "output": said}


META = wrapped("session_meta", {"id": ID, "timestamp": STAMP, "cwd": "/w", "cli_version": "0.60.0", "source": "cli"})
OLD_META = {"id": ID, "timestamp": STAMP, "instructions": None, "git": {"branch": "main"}}
STATE = {"record_type": "state"}


def read(*values: object) -> tuple[Said, list[Unreadable]]:
    lines: Said = []
    faults = []
    for record in codex.convert(file(*values), "private"):
        if isinstance(record, Unreadable):
            faults.append(record)
        else:
            assert isinstance(record, Converted) and record.chain == 0
            lines.append((record.stream, json.loads(record.raw)))
    return lines, faults


def said(*values: object) -> Said:
    lines, faults = read(*values)
    assert faults == []
    return lines


def without(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in keys}


CONTEXT = "<environment_context>\n  <cwd>/w</cwd>\n</environment_context>"


def test_a_conversation_of_the_newer_form() -> None:
    found = said(
        META,
        item(message("user", CONTEXT)),
        item(message("user", "list it")),
        event("user_message", message="list it"),
        wrapped("turn_context", {"cwd": "/w", "model": "gpt-5-codex", "approval_policy": "never"}),
        item({"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look"}], "encrypted_content": "x"}),
        event("agent_reasoning", text="Look"),
        item(call("c1")),
        item(output("c1", "file\n")),
        item(message("assistant", "One file.", "output_text")),
        event("agent_message", message="One file."),
        event("token_count", info={"total_token_usage": {"input_tokens": 9}, "last_token_usage": USED}),
        event("token_count", info={"total_token_usage": {"input_tokens": 9}, "last_token_usage": USED}),
        event("token_count", info=None),
    )
    runs = [value["run"] for _, value in found if "run" in value]
    assert len(set(runs)) == 2 and set(runs[1:]) == {runs[1]}
    assert [(stream, without(value, "run", "timestamp")) for stream, value in found] == [
        ("events", {"type": "cwd", "cwd": "/w"}),
        (
            "messages",
            {"role": "user", "content": [text(CONTEXT)]},
        ),
        ("messages", {"role": "user", "content": [text("list it")]}),
        ("events", {"type": "meta", "meta": {"client": "codex", "model": "gpt-5-codex", "scope": "private"}}),
        ("events", {"type": "reasoning_message", "role": "assistant", "content": [text("Look")]}),
        ("events", {"type": "tool_call", "id": "c1", "name": "shell", "arguments": {"cmd": "ls"}}),
        ("messages", {"role": "tool", "name": "shell", "content": [result("c1", "file\n")]}),
        ("messages", {"role": "assistant", "content": [text("One file.")]}),
        ("events", {"type": "usage", **COUNTED}),
    ]


USED = {
    "input_tokens": 9,
    "cached_input_tokens": 4,
    "output_tokens": 3,
    "reasoning_output_tokens": 1,
    "total_tokens": 12,
}
COUNTED = {"input_tokens": 9, "cached_tokens": 4, "output_tokens": 3, "reasoning_tokens": 1}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def result(call_id: str, content: object, **more: object) -> dict[str, object]:
    return {"type": "tool_result", "tool_call_id": call_id, "content": content, **more}


def test_a_conversation_of_the_older_form_has_its_cwd_from_the_context_and_its_time_from_the_header() -> None:
    values: list[object] = [OLD_META, STATE]
    values += [message("user", "<environment_context>\nCurrent working directory: /old\n"), STATE]
    values += [message("user", "go"), call("c1"), output("c1", "ok"), message("assistant", "done", "output_text")]
    found = said(*values)
    assert [value.get("type") or value["role"] for _, value in found] == [
        "cwd",
        "user",
        "user",
        "tool_call",
        "tool",
        "assistant",
    ]
    assert found[0][1]["cwd"] == "/old" and not any("timestamp" in value for _, value in found)
    times = {record.time for record in codex.convert(file(*values), "private") if isinstance(record, Converted)}
    assert times == {MS}


@pytest.mark.parametrize(
    ("payload", "name", "arguments"),
    [
        (call("c"), "shell", {"cmd": "ls"}),
        (call("c", "not JSON"), "shell", {"input": "not JSON"}),
        (call("c", "[1]"), "shell", {"input": "[1]"}),
        (
            {"type": "custom_tool_call", "name": "apply_patch", "call_id": "c", "input": "*** x"},
            "apply_patch",
            {"input": "*** x"},
        ),
        (
            {
                "type": "local_shell_call",
                "call_id": "c",
                "status": "completed",
                "action": {"type": "exec", "command": ["ls"]},
            },
            "local_shell",
            {"type": "exec", "command": ["ls"]},
        ),
        ({"type": "local_shell_call", "id": "c", "action": {"type": "exec"}}, "local_shell", {"type": "exec"}),
        (
            {"type": "web_search_call", "id": "c", "action": {"type": "search", "query": "q"}},
            "web_search",
            {"type": "search", "query": "q"},
        ),
    ],
)
def test_calls(payload: object, name: str, arguments: object) -> None:
    ((stream, value),) = said(item(payload))
    assert (stream, value["type"], value["id"], value["name"]) == ("events", "tool_call", "c", name)
    assert value["arguments"] == arguments


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (output("c", "text"), result("c", "text")),
        (output("c", {"content": "no", "success": False}), result("c", "no", is_error=True)),
        (output("c", [{"type": "input_text", "text": "a"}]), result("c", [text("a")])),
        (
            output("c", [{"type": "input_image", "image_url": "data:x"}]),
            result("c", [{"type": "image", "url": "data:x"}]),
        ),
        ({"type": "custom_tool_call_output", "call_id": "c", "output": "ok"}, result("c", "ok")),
    ],
)
def test_results(payload: object, expected: object) -> None:
    ((_, value),) = said(item(payload))
    assert value["content"] == [expected] and "name" not in value


def test_a_result_before_its_call_is_of_the_same_run() -> None:
    found = said(item(message("user", "go")), item(output("c", "ok")), item(call("c")))
    assert len({value["run"] for _, value in found}) == 1


@pytest.mark.parametrize(
    ("payload", "summary"),
    [
        ({"message": "short"}, [{"role": "assistant", "content": "short"}]),
        (
            {"message": "", "replacement_history": [message("user", "kept")]},
            [{"role": "user", "content": [text("kept")]}],
        ),
        (
            {"message": "", "replacement_history": [call("c"), output("c", "ok"), {"type": "compaction"}, None]},
            [
                {
                    "role": "assistant",
                    "content": [],
                    "tool_calls": [{"id": "c", "name": "shell", "arguments": {"cmd": "ls"}}],
                },
                {"role": "tool", "content": [result("c", "ok")]},
            ],
        ),
    ],
)
def test_compacted_is_a_cut(payload: object, summary: object) -> None:
    *_, (stream, value) = said(META, item(message("user", "go")), wrapped("compacted", payload))
    assert (stream, value["type"], value["before"], value["reason"]) == ("events", "cut", 2, "compacted")
    assert value["summary"] == summary


def test_a_rollback_begins_a_child_where_the_turns_began() -> None:
    turns = [item(message(role, f"{role}{n}")) for n in range(3) for role in ("user", "assistant")]
    records = list(
        codex.convert(
            file(META, *turns, event("thread_rolled_back", num_turns=2), item(message("user", "anew"))), "private"
        )
    )
    (child,) = (record for record in records if isinstance(record, Child))
    assert (child.chain, child.parent, child.at.entries, len(child.key)) == (1, 0, 3, 8)
    last = records[-1]
    assert isinstance(last, Converted) and last.chain == 1 and "anew" in last.raw.decode()


@pytest.mark.parametrize("turns", [0, -1, None, "1", True])
def test_a_rollback_of_nothing_is_none(turns: object) -> None:
    assert (
        len(
            said(item(message("user", "go")), event("thread_rolled_back", num_turns=turns), item(message("user", "on")))
        )
        == 2
    )


def test_the_header_of_the_session_it_was_forked_from_is_passed_over() -> None:
    other = wrapped("session_meta", {"id": PARENT, "timestamp": STAMP, "cwd": "/other"})
    assert said(META, other) == [("events", {"type": "cwd", "cwd": "/w"})]
    assert codex.identify(file(META, other), "x") == Identity(ID, ID)


SPAWNED = {"agent": {"thread_spawn": {"parent_thread_id": PARENT}}}


@pytest.mark.parametrize(
    ("lines", "stem", "expected"),
    [
        ([META], "rollout-2026-03-01T10-00-00-" + PARENT, Identity(ID, ID)),
        ([OLD_META, STATE], "x", Identity(ID, ID)),
        ([b"{", OLD_META], "x", Identity(ID, ID)),
        ([item(message("user", "x"))], f"rollout-2026-03-01T10-00-00-{ID}", Identity(ID, ID)),
        ([], "my talk", Identity("my-talk+ec180802")),
        ([wrapped("session_meta", {"id": ID, "forked_from_id": PARENT})], "x", Identity(ID, ID, PARENT)),
        ([wrapped("session_meta", {"id": ID, "source": SPAWNED})], "x", Identity(ID, ID, PARENT)),
        ([wrapped("session_meta", {"id": ID, "source": {"agent": "review"}})], "x", Identity(ID, ID)),
    ],
)
def test_a_session_is_called_after_its_id(lines: list[object], stem: str, expected: Identity) -> None:
    assert codex.identify(file(*lines), stem) == expected


@pytest.mark.parametrize(
    "bad",
    [
        b"{",
        b"",
        b"[1]",
        b"\xff",
        item({"type": "message", "role": "boss", "content": []}),
        item({"type": "message", "role": "user", "content": 5}),
        item({"type": "message", "role": "user", "content": [5]}),
        item({"type": "function_call", "call_id": "c"}),
        item({"type": "function_call_output", "output": "x"}),
        wrapped("compacted", {}),
    ],
)
def test_a_damaged_line_is_reported_and_the_rest_is_read(bad: object) -> None:
    lines, faults = read(item(message("user", "before")), bad, item(message("user", "after")))
    assert [value["content"][0]["text"] for _, value in lines] == ["before", "after"]
    assert [fault.number for fault in faults] == [2]


@pytest.mark.parametrize(
    "other",
    [
        STATE,
        {},
        event("exec_command_end", call_id="c", aggregated_output="x"),
        item({"type": "ghost_snapshot", "ghost_commit": {}}),
        item({"type": "reasoning", "summary": [], "encrypted_content": "x"}),
        wrapped("world_state", {"full": True}),
        wrapped("turn_context", {}),
    ],
)
def test_what_is_not_of_the_conversation_gives_nothing(other: object) -> None:
    assert said(other) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)
CALLS = ["function_call", "function_call_output", "local_shell_call", "custom_tool_call", "web_search_call"]
KINDS = ["message", "reasoning", *CALLS, "token_count", "thread_rolled_back"]
FIELDS = ["role", "content", "call_id", "id", "name", "arguments", "output", "summary", "info", "num_turns"]
FIELDS += ["message", "cwd", "replacement_history", "last_token_usage", "action"]
PAYLOAD = st.fixed_dictionaries({"type": st.sampled_from(KINDS)}, optional=dict.fromkeys(FIELDS, JSON))
TYPES = ["session_meta", "response_item", "event_msg", "turn_context", "compacted"]
WRAPPED = {"type": st.sampled_from(TYPES), "payload": PAYLOAD}
LINE = PAYLOAD | st.fixed_dictionaries(WRAPPED, optional={"timestamp": JSON})


@given(st.lists(LINE | JSON | st.binary(max_size=20).filter(lambda raw: b"\n" not in raw), max_size=6))
def test_whatever_a_file_holds_every_line_given_is_valid(values: list[Any]) -> None:
    codex.identify(file(*values), "x")
    for record in codex.convert(file(*values), "private"):
        if isinstance(record, Converted):
            parse_line(record.stream, record.raw, scope="private")
