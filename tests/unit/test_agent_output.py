"""Specs 3.3 and 3.6: what an agent prints, and which entries and frames that is."""

import json
from typing import Any

import pytest

from backend.digest import prompt_digest
from backend.rows import Line
from ctxfs.agents.output import MAX_TEXT, AgentError, BadOutput, Output

RUN = "ctx-0"
TEXT = [{"type": "text", "text": "hi"}]
MESSAGE = {"type": "message", "role": "assistant", "content": TEXT}
CALL = {"type": "tool_call", "id": "call-1", "name": "fs.read", "arguments": {"path": "x"}}
RESULT = {"type": "tool_result", "tool_call_id": "call-1", "content": "file"}
USAGE = {"type": "usage", "input_tokens": 1, "output_tokens": 2}
HEADER = {"provider": "p", "model": "m"}


def mark(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "mark", "name": name, "data": data}


PROMPT = {"turn": 0, "step": 0, "reason": "user", "sources": []}


class Agent:
    """Prints frames, and remembers what became of them."""

    def __init__(self) -> None:
        self.output = Output(RUN)
        self.entries: list[dict[str, Any]] = []
        self.frames: list[dict[str, Any]] = []

    def prints(self, *values: dict[str, Any]) -> "Agent":
        for value in values:
            taken = self.output.take(json.dumps(value).encode())
            self.entries += map(loaded, taken.entries)
            self.frames += map(json.loads, taken.frames)
        return self

    def finishes(self) -> "Agent":
        taken = self.output.finish()
        self.entries += map(loaded, taken.entries)
        self.frames += map(json.loads, taken.frames)
        return self


def loaded(line: Line) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(line.raw)
    return value


def of_run(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "run": RUN}


STORED = {"role": "assistant", "content": TEXT, "run": RUN}
STORED_RESULT = {
    "role": "tool",
    "name": "fs.read",
    "content": [{"type": "tool_result", "tool_call_id": "call-1", "content": "file"}],
    "run": RUN,
}


def test_events_are_entries_and_frames_of_the_run_as_they_come() -> None:
    agent = Agent().prints(CALL, USAGE)
    assert agent.entries == agent.frames == [of_run(CALL), of_run(USAGE)]


def test_lines_are_compact_and_sorted() -> None:
    [line] = Output(RUN).take(json.dumps(USAGE).encode()).entries
    assert line.raw == b'{"input_tokens":1,"output_tokens":2,"run":"ctx-0","type":"usage"}'


def test_a_delta_is_told_and_never_an_entry() -> None:
    agent = Agent().prints({"type": "delta", "text": "h"}, {"type": "reasoning_delta", "text": "hm"})
    assert agent.entries == []
    assert [frame["type"] for frame in agent.frames] == ["delta", "reasoning_delta"]


def test_the_last_message_is_left_to_the_end_with_the_usage_behind_it() -> None:
    agent = Agent().prints(MESSAGE, USAGE)
    assert agent.entries == []
    assert agent.frames == [{**STORED, "type": "message"}, of_run(USAGE)]
    assert agent.finishes().entries == [STORED, of_run(USAGE)]


def test_an_earlier_message_is_an_entry_before_what_follows() -> None:
    assert Agent().prints(MESSAGE, CALL).entries == [STORED, of_run(CALL)]
    assert Agent().prints(MESSAGE, MESSAGE).finishes().entries == [STORED, STORED]


def test_a_tool_result_is_a_message_of_the_tool() -> None:
    agent = Agent().prints(CALL, RESULT)
    assert agent.entries == [of_run(CALL), STORED_RESULT]
    assert agent.frames[1] == {**STORED_RESULT, "type": "message"}


def test_text_that_became_no_message_is_one_at_the_end() -> None:
    agent = Agent().prints({"type": "delta", "text": "h"}, {"type": "delta", "text": "i"}).finishes()
    assert agent.entries == [STORED]
    assert agent.frames[-1] == {**STORED, "type": "message"}


def test_text_before_a_tool_call_is_a_message_before_it() -> None:
    agent = Agent().prints({"type": "delta", "text": "hi"}, CALL)
    assert agent.entries == [STORED, of_run(CALL)]
    assert [frame["type"] for frame in agent.frames] == ["delta", "message", "tool_call"]


def test_text_is_stored_once_where_its_message_follows() -> None:
    assert Agent().prints({"type": "delta", "text": "hi"}, MESSAGE).finishes().entries == [STORED]


def test_of_a_run_that_was_ended_the_text_so_far_is_partial() -> None:
    agent = Agent().prints({"type": "delta", "text": "hi"})
    assert list(map(loaded, agent.output.abandon())) == [{**STORED, "partial": True}]
    assert Agent().output.abandon() == []
    whole = Agent().prints(MESSAGE)
    assert list(map(loaded, whole.output.abandon())) == [STORED]


def test_meta_of_a_message_is_kept() -> None:
    meta = {"turn": 1, "finish": "stop"}
    assert Agent().prints({**MESSAGE, "meta": meta}).finishes().entries == [{**STORED, "meta": meta}]


def test_a_mark_is_an_entry() -> None:
    skipped = mark("turn-skip", reason="none")
    assert Agent().prints(skipped).entries == [skipped]


def test_a_prompt_gets_its_digest() -> None:
    [prompt] = Agent().prints(mark("prompt", header=HEADER, **PROMPT)).entries
    assert prompt["data"]["header"] == {**HEADER, "promptDigest": prompt_digest(HEADER)}
    right = mark("prompt", header=prompt["data"]["header"], **PROMPT)
    assert Agent().prints(right).entries == [right]


def test_an_error_of_the_agent_ends_it() -> None:
    with pytest.raises(AgentError) as ended:
        Agent().prints({"type": "error", "code": "EACCES", "message": "no", "tool": "fs.read"})
    assert loaded(ended.value.line) == of_run({"type": "error", "code": "EACCES", "message": "no", "tool": "fs.read"})


REFUSED: dict[str, list[Any]] = {
    "no JSON": [b"hello"],
    "a blank line": [b""],
    "an array": [[1]],
    "no type": [{}],
    "a type that is no string": [{"type": ["delta"]}],
    "an unknown type": [{"type": "sing"}],
    "start": [{"type": "start", "id": RUN, "client_id": "c", "scope": "private", "cwd": "/"}],
    "done": [{"type": "done", "status": "ok"}],
    "state": [{"type": "state", "from": "idle", "state": "done"}],
    "reasoning_message": [{"type": "reasoning_message", "role": "assistant", "content": "x"}],
    "another run's": [{**USAGE, "run": "ctx-1"}],
    "a run that is no string": [{**USAGE, "run": 1}],
    "a message of the user": [{**MESSAGE, "role": "user"}],
    "a message without content": [{"type": "message", "role": "assistant"}],
    "a delta without text": [{"type": "delta"}],
    "a NUL": [{"type": "delta", "text": "\0"}],
    "half a surrogate pair": [b'{"type":"delta","text":"\\ud800"}'],
    "a key twice": [b'{"type":"delta","type":"delta","text":"x"}'],
    "a result without a call": [RESULT],
    "a second result": [CALL, RESULT, RESULT],
    "a result of another call": [CALL, {**RESULT, "tool_call_id": "call-2"}],
    "two calls of one id": [CALL, CALL],
    "usage below 0": [{**USAGE, "input_tokens": -1}],
    "an error whose code is no errno": [{"type": "error", "code": "BAD", "message": "x"}],
    "an undefined mark": [mark("mine", x=1)],
    "a wrong digest": [mark("prompt", header={**HEADER, "promptDigest": "0" * 64}, **PROMPT)],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_agent_may_print_is_refused(name: str) -> None:
    output = Output(RUN)
    *before, last = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in REFUSED[name]]
    for raw in before:
        output.take(raw)
    with pytest.raises(BadOutput) as refused:
        output.take(last)
    assert refused.value.code == "EIO"


@pytest.mark.parametrize("text", ["x" * 100_000, "é\n\\" * 20_000])
def test_more_text_than_a_line_may_have_becomes_several_messages(text: str) -> None:
    deltas = [{"type": "delta", "text": text}] * (2 * MAX_TEXT // len(text) + 1)
    agent = Agent().prints(*deltas).finishes()
    assert len(agent.entries) >= 3
    assert "".join(entry["content"][0]["text"] for entry in agent.entries) == text * len(deltas)
    said = [frame for frame in agent.frames if frame["type"] == "message"]
    assert [{**entry, "type": "message"} for entry in agent.entries] == said


def test_so_does_that_of_a_run_that_ends_early() -> None:
    agent = Agent().prints(*[{"type": "delta", "text": "x" * 100_000}] * 12)
    lines = agent.output.abandon()
    assert [len(line.raw) <= 1 << 20 for line in lines] == [True, True]
    assert all(loaded(line)["partial"] for line in lines)


def test_however_much_was_streamed_a_message_of_the_agents_own_stands_for_it() -> None:
    deltas = [{"type": "delta", "text": "x" * 100_000}] * 12
    assert Agent().prints(*deltas, MESSAGE).finishes().entries == [STORED]
