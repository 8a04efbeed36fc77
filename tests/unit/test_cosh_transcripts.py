"""Session files of cosh-core as lines of sessions (spec 4.2, import)."""

import io
import json
from typing import Any

import pytest

from backend.transcripts import cosh
from backend.transcripts.records import Converted, Identity, Unreadable
from tests.cosh_store import message, session_id

_CALL = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"cmd":"ls"}'}}


def envelope(*messages: dict[str, Any], **changed: Any) -> bytes:
    fields = {
        "schema_version": 1,
        "session_id": session_id(1),
        "workspace_scope": "/work/project",
        "created_at_ms": 1000,
        "updated_at_ms": 9000,
        "model": "qwen",
        "generation": 3,
        "messages": messages,
    }
    return json.dumps({**fields, **changed}).encode()


def read(raw: bytes) -> list[Any]:
    """Stream and value of each line, or what is unreadable."""
    records = cosh.convert(io.BytesIO(raw), "private")
    return [(record.stream, json.loads(record.raw)) if isinstance(record, Converted) else record for record in records]


@pytest.mark.parametrize(
    ("raw", "stem", "identity"),
    [
        (b"[]", session_id(2), Identity(session_id(2), session_id(2))),
        (envelope(), "copy", Identity(session_id(1), session_id(1))),
        (b"[]", "copy", Identity("copy")),
        (b"{", "copy", Identity("copy")),
    ],
)
def test_a_session_is_called_after_its_id(raw: bytes, stem: str, identity: Identity) -> None:
    assert cosh.identify(io.BytesIO(raw), stem) == identity


def test_a_conversation_keeps_its_calls_and_results_in_runs() -> None:
    raw = envelope(
        message("rules", "system"),
        message("list"),
        message("I look", "assistant", tool_calls=[_CALL]),
        message("a.txt", "tool", tool_call_id="c1", name="shell"),
        message([{"type": "text", "text": "next"}, {"type": "tool_result", "tool_use_id": "x", "content": "late"}]),
    )
    lines = read(raw)
    runs = [value.get("run") for _, value in lines[2:]]
    for _, value in lines:
        value.pop("run", None)
    assert lines == [
        ("events", {"type": "cwd", "cwd": "/work/project"}),
        ("events", {"type": "meta", "meta": {"client": "cosh", "model": "qwen", "scope": "private"}}),
        ("messages", {"role": "system", "content": [{"type": "text", "text": "rules"}]}),
        ("messages", {"role": "user", "content": [{"type": "text", "text": "list"}]}),
        ("messages", {"role": "assistant", "content": [{"type": "text", "text": "I look"}]}),
        ("events", {"type": "tool_call", "id": "c1", "name": "shell", "arguments": {"cmd": "ls"}}),
        (
            "messages",
            {
                "role": "tool",
                "name": "shell",
                "content": [{"type": "tool_result", "tool_call_id": "c1", "content": "a.txt"}],
            },
        ),
        (
            "messages",
            {"role": "tool", "content": [{"type": "tool_result", "tool_call_id": "x", "content": "late"}]},
        ),
        ("messages", {"role": "user", "content": [{"type": "text", "text": "next"}]}),
    ]
    assert runs[1] == runs[2] == runs[3] == runs[4] != runs[5] == runs[6]


def test_the_same_file_gives_the_same_lines() -> None:
    raw = envelope(message("a"), message("b", "assistant"))
    assert read(raw) == read(raw)


def test_times_are_the_sessions() -> None:
    records = list(cosh.convert(io.BytesIO(envelope(message("a"), message("b"))), "private"))
    assert [record.time for record in records if isinstance(record, Converted)] == [1000, 1000, 1000, 9000]


def test_secrets_do_not_come_along() -> None:
    [*_, (_, said)] = read(envelope(message("my sk-abcdefghijklmnop")))
    assert said["content"] == [{"type": "text", "text": "my <redacted>"}]


def test_an_older_array_has_neither_cwd_nor_model() -> None:
    assert [stream for stream, _ in read(json.dumps([message("a")]).encode())] == ["messages"]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", "Expecting"),
        (b"\xff", "invalid UTF-8"),
        (envelope(generation=-1), "generation must be"),
        (envelope(schema_version=2), "unsupported schema version 2"),
        (b" " * ((32 << 20) + 1), "exceeds"),
    ],
)
def test_a_file_that_does_not_load_is_unreadable_as_a_whole(raw: bytes, reason: str) -> None:
    [found] = read(raw)
    assert isinstance(found, Unreadable)
    assert reason in found.reason


@pytest.mark.parametrize("wrong", [message("x", "developer"), message("x", "tool")])
def test_a_message_that_fits_nowhere_is_told_by_its_number(wrong: dict[str, Any]) -> None:
    faults = [found for found in read(envelope(message("a"), wrong)) if isinstance(found, Unreadable)]
    assert [fault.number for fault in faults] == [2]
