"""Any lines appended through the mount: each is one entry of log.jsonl, and in its file as it came (spec 1.3, 1.7)."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.mount.acting import new_session, write_once

text = st.text('ab\n"\\é\u2028\U0001f600', max_size=6)
message = st.builds(
    lambda role, content, meta: {"role": role, "content": content} | ({"meta": meta} if meta else {}),
    st.sampled_from(["user", "assistant", "tool"]),
    text | st.lists(text.map(lambda t: {"type": "text", "text": t}), max_size=2),
    st.none() | st.just({"turn": 1}),
)
event = st.one_of(
    text.map(lambda t: {"type": "delta", "run": "r", "text": t}),
    text.map(lambda t: {"type": "mark", "name": "turn-skip", "data": {"reason": t}}),
    st.lists(message.map(lambda m: {"role": m["role"], "content": m["content"]}), max_size=2).map(
        lambda summary: {"type": "cut", "before": 0, "summary": summary, "reason": "r"}
    ),
)
requests = st.lists(
    st.one_of(
        st.tuples(st.just("messages"), st.lists(message, min_size=1, max_size=3)),
        st.tuples(st.just("events"), st.lists(event, min_size=1, max_size=3)),
    ),
    max_size=6,
)


def raw(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii="meta" in value).encode() + b"\n"


def projected(lines: list[tuple[str, Any]]) -> list[Any]:
    """What the model is sent, computed anew."""
    messages: list[Any] = []
    for stream, value in lines:
        if value.get("type") == "cut":
            messages = list(value["summary"])
        elif stream == "messages":
            messages.append({key: value[key] for key in value if key != "meta"})
    return messages


def as_line(entry: dict[str, Any]) -> dict[str, Any]:
    """The line that an entry is in its file (spec 2.1)."""
    if entry["kind"] == "message":
        return entry["message"] | ({"meta": entry["meta"]} if "meta" in entry else {})  # type: ignore[no-any-return]
    if entry["kind"] == "cut":
        return {"type": "cut", **entry["data"]}
    if entry["name"] in ("delta", "state"):
        return {"type": entry["name"], **entry["data"]}
    return {"type": "mark", "name": entry["name"], "data": entry["data"]}


def objects(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(requests=requests)
def test_every_entry_is_in_the_log_once_and_in_its_file_as_it_came(ctx: Path, requests: list[Any]) -> None:
    session = new_session(ctx)
    lines: list[tuple[str, Any]] = []
    contents = {"messages": b"", "events": b""}
    for stream, values in requests:
        data = b"".join(map(raw, values))
        write_once(session / f"{stream}.jsonl", data)
        contents[stream] += data
        lines += [(stream, value) for value in values]
    assert {stream: (session / f"{stream}.jsonl").read_bytes() for stream in contents} == contents
    log = objects(session / "context/log.jsonl")
    assert [entry["n"] for entry in log] == list(range(len(lines)))
    assert list(map(as_line, log)) == [value for _, value in lines]
    assert objects(session / "context/messages.jsonl") == projected(lines)


@pytest.mark.parametrize("times", [1, 100])
def test_compactions_leave_a_projection_of_their_own_size(ctx: Path, times: int) -> None:
    """Field report 11: a hundred compactions add a hundred cuts to the log, and the projection does not grow."""
    session = new_session(ctx)
    write_once(session / "messages.jsonl", raw({"role": "user", "content": "x" * 1000}) * 50)
    cut = raw({"type": "cut", "before": 0, "summary": [{"role": "user", "content": "short"}], "reason": "r"})
    for _ in range(times):
        write_once(session / "events.jsonl", cut)
    assert objects(session / "context/messages.jsonl") == [{"role": "user", "content": "short"}]
    assert len(objects(session / "context/log.jsonl")) == 50 + times
