"""A session as an ATIF-v1.7 trajectory (spec 4.3). Pure: entries of a log in, one trajectory out.

A projection for other programs, never a second history: a call stands in it only if the log has a ``tool_call`` of
that run, or an assistant message that names it, and a result only if it answers such a call, each call once. What
matches nothing is left out and nothing is made up. The structs below are the format; ``issues`` says what in a
trajectory breaks its rules, and nothing that has any may be given out.
"""

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import msgspec

from backend.entries import Entry, MarkEntry, MessageEntry
from backend.lines import content_text

SCHEMA_VERSION = "ATIF-v1.7"
NOTES = "projected from the session's messages.jsonl and events.jsonl"

_SOURCES = {"system": "system", "user": "user", "assistant": "agent"}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

Key = tuple[str | None, str]
"""A run and a call id: what ties a result to its call."""


class _Record(msgspec.Struct, omit_defaults=True):
    """An object of the format; absent optionals are left out."""


class Agent(_Record):
    """Who ran: ``extra`` holds the scope."""

    name: str
    version: str
    model_name: str | None = None
    extra: dict[str, Any] | None = None


class ToolCall(_Record):
    """A call that the agent made."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]


class Result(_Record):
    """What a call of the same step gave."""

    source_call_id: str
    content: str


class Observation(_Record):
    """The results of a step."""

    results: list[Result]


class Metrics(_Record):
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int


class Step(_Record):
    """``step_id`` counts from 1; ``timestamp``: ISO 8601 in UTC, the entry's time."""

    step_id: int
    source: str
    message: str
    timestamp: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    extra: dict[str, Any] | None = None


class FinalMetrics(_Record):
    """Totals of the whole trajectory."""

    total_steps: int
    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None


class Trajectory(_Record):
    """The whole; ``session_id`` is the name of the session."""

    schema_version: str
    session_id: str
    agent: Agent
    steps: list[Step]
    notes: str
    final_metrics: FinalMetrics | None = None


def agent_of(meta: Mapping[str, Any], name: str, version: str) -> Agent:
    """The agent that a session's meta.json tells of; ``name`` where it has no client or an empty one."""
    client, model, scope = (meta.get(key) for key in ("client", "model", "scope"))
    return Agent(
        name=client if isinstance(client, str) and client.strip() else name,
        version=version,
        model_name=model if isinstance(model, str) and model else None,
        extra={"scope": scope} if isinstance(scope, str) else None,
    )


def project(entries: Iterable[Entry], session: str, agent: Agent) -> Trajectory:
    """The trajectory of a log; without steps where the log has nothing that would be one.

    ``entries`` is iterated twice, so that a log need not be in memory. Marks come first: a call may be recorded after
    its result, or in a file that has no order with the messages.
    """
    projection = _Projection()
    for entry in entries:
        if isinstance(entry, MarkEntry) and isinstance(entry.data, dict):
            projection.record(entry)
    for entry in entries:
        if isinstance(entry, MessageEntry):
            projection.add(entry)
    projection.finish()
    return Trajectory(SCHEMA_VERSION, session, agent, projection.steps, NOTES, projection.final_metrics())


class _Projection:
    """Steps as they grow."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._of_run: dict[str | None, list[Step]] = defaultdict(list)
        self._unplaced: dict[Key, deque[tuple[ToolCall, int]]] = defaultdict(deque)
        self._unanswered: dict[Key, deque[Step]] = defaultdict(deque)
        self._result_events: list[MarkEntry] = []
        self._usages: list[tuple[str | None, Metrics]] = []

    def record(self, entry: MarkEntry) -> None:
        """A mark: a call waits for its message or its result, which say what step it belongs to."""
        run = _run(entry.data)
        if entry.name == "tool_call" and (call := _call(entry.data)) is not None:
            self._unplaced[run, call.tool_call_id].append((call, entry.time))
        elif entry.name == "tool_result":
            self._result_events.append(entry)
        elif entry.name == "usage" and (metrics := _metrics(entry.data)) is not None:
            self._usages.append((run, metrics))

    def add(self, entry: MessageEntry) -> None:
        """One step for what was said; a tool message adds to the steps of its run."""
        message = entry.message
        source = _SOURCES.get(str(message.get("role")))
        if source == "agent":
            step = self._agent_step(_run(message), content_text(message.get("content")), entry.time)
            self._place_named_calls(step, message)
        elif source is not None:
            self._step(source, content_text(message.get("content")), entry.time)
        elif message.get("role") == "tool":
            for call_id, content in _results(message):
                self._answer((_run(message), call_id), content, entry.time)

    def finish(self) -> None:
        """Results that are events and no messages; then the calls without a result, into the last step of their run."""
        for entry in self._result_events:
            key = _run(entry.data), str(entry.data.get("tool_call_id"))
            self._answer(key, content_text(entry.data.get("content")), entry.time)
        for (run, _), calls in self._unplaced.items():
            for call, time in calls:
                _append_call(self._last_step(run, time), call)

    def final_metrics(self) -> FinalMetrics:
        """Totals over all usage; a run's usage goes to its step too, if it has exactly one."""
        for run, metrics in self._usages:
            steps = self._of_run[run] if run is not None else []
            if len(steps) == 1:
                steps[0].metrics = _sum(steps[0].metrics, metrics)
        if not self._usages:
            return FinalMetrics(len(self.steps))
        total = reduce(_sum, (metrics for _, metrics in self._usages))
        return FinalMetrics(len(self.steps), total.prompt_tokens, total.completion_tokens)

    def _step(self, source: str, message: str, time: int) -> Step:
        step = Step(len(self.steps) + 1, source, message, _timestamp(time))
        self.steps.append(step)
        return step

    def _agent_step(self, run: str | None, message: str, time: int) -> Step:
        step = self._step("agent", message, time)
        step.extra = None if run is None else {"run": run}
        self._of_run[run].append(step)
        return step

    def _last_step(self, run: str | None, time: int) -> Step:
        """The last agent step of a run, made if there is none; without a run: the only agent step there is."""
        steps = self._of_run[run]
        if run is None:
            steps = [step for step in self.steps if step.source == "agent"]
            if len(steps) > 1:
                steps = []
        return steps[-1] if steps else self._agent_step(run, "", time)

    def _place_named_calls(self, step: Step, message: Mapping[str, Any]) -> None:
        """The calls that an assistant's message names itself; one that is an event too is that event."""
        named, run = message.get("tool_calls"), _run(message)
        for call in filter(None, map(_call, named if isinstance(named, list) else [])):
            key = run, call.tool_call_id
            recorded = self._unplaced.get(key)
            if recorded is None or recorded:
                _append_call(step, recorded.popleft()[0] if recorded else call)
                self._unanswered[key].append(step)

    def _answer(self, key: Key, content: str, time: int) -> None:
        """A result, beside the call that it answers; dropped without a run, or where no such call is left."""
        run, call_id = key
        if run is None:
            return
        if waiting := self._unanswered.get(key):
            step = waiting.popleft()
        elif calls := self._unplaced.get(key):
            step = self._last_step(run, time)
            _append_call(step, calls.popleft()[0])
        else:
            return
        step.observation = step.observation or Observation([])
        step.observation.results.append(Result(call_id, content))


def issues(trajectory: Trajectory) -> Iterator[str]:
    """What breaks the format's rules, one line each."""
    if not trajectory.schema_version.startswith("ATIF-v"):
        yield "schema_version must begin with ATIF-v"
    if not trajectory.agent.name.strip():
        yield "missing agent name"
    if not trajectory.agent.version.strip():
        yield "missing agent version"
    for number, step in enumerate(trajectory.steps, 1):
        for issue in _step_issues(step, number):
            yield f"step {number}: {issue}"


def json_pieces(trajectory: Trajectory) -> Iterator[bytes]:
    """The trajectory as JSON, indented by two spaces, with a final newline: a piece for each step.

    A lone surrogate becomes its escape, as text: it would be no Unicode.
    """
    frame = msgspec.structs.replace(trajectory, steps=[])
    head, steps, tail = _indented(frame).partition(b'"steps": []')
    yield head + steps[:-1]
    for number, step in enumerate(trajectory.steps):
        # No string of JSON holds a line break.
        yield (b",\n    " if number else b"\n    ") + _indented(step).replace(b"\n", b"\n    ")
    yield (b"\n  ]" if trajectory.steps else b"]") + tail + b"\n"


def _indented(value: _Record) -> bytes:
    try:
        raw = msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        raw = _LONE_SURROGATE.sub(lambda match: rf"\\u{ord(match[0]):04x}", text).encode()
    return msgspec.json.format(raw, indent=2)


def _step_issues(step: Step, number: int) -> Iterator[str]:
    if step.step_id != number:
        yield f"step_id is {step.step_id}"
    if step.source not in ("system", "user", "agent"):
        yield f"unknown source {step.source!r}"
    if step.source != "agent" and (step.tool_calls is not None or step.metrics is not None):
        yield f"tool calls or metrics in a step of source {step.source!r}"
    ids = set()
    for call in step.tool_calls or ():
        ids.add(call.tool_call_id)
        if not call.tool_call_id.strip():
            yield "a tool call without an id"
        if not call.function_name.strip():
            yield f"tool call {call.tool_call_id!r} without a name"
    for result in step.observation.results if step.observation else ():
        if result.source_call_id not in ids:
            yield f"a result of {result.source_call_id!r}, which is no tool call of this step"


def _run(value: Mapping[str, Any]) -> str | None:
    run = value.get("run")
    return run if isinstance(run, str) and run else None


def _call(data: Any) -> ToolCall | None:
    """A call from an event, or from a message's ``tool_calls``; None without an id and a name."""
    if not isinstance(data, dict):
        return None
    call_id, name, arguments = data.get("id"), data.get("name"), data.get("arguments", {})
    if not isinstance(call_id, str) or not isinstance(name, str):
        return None
    return ToolCall(call_id, name, arguments if isinstance(arguments, dict) else {"value": arguments})


def _append_call(step: Step, call: ToolCall) -> None:
    step.tool_calls = [*(step.tool_calls or ()), call]


def _results(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Call ids and texts: the ``tool_result`` parts of a tool message, or the message itself if it names a call."""
    content, own = message.get("content"), message.get("tool_call_id")
    parts = content if isinstance(content, list) else []
    found = [part for part in parts if isinstance(part, dict) and part.get("type") == "tool_result"]
    for part in found:
        if isinstance(part.get("tool_call_id"), str):
            yield part["tool_call_id"], content_text(part.get("content"))
    if not found and isinstance(own, str):
        yield own, content_text(content)


def _metrics(data: Mapping[str, Any]) -> Metrics | None:
    read, written = data.get("input_tokens"), data.get("output_tokens")
    if type(read) is not int or type(written) is not int or read < 0 or written < 0:
        return None
    return Metrics(read, written)


def _sum(one: Metrics | None, other: Metrics) -> Metrics:
    if one is None:
        return other
    return Metrics(one.prompt_tokens + other.prompt_tokens, one.completion_tokens + other.completion_tokens)


def _timestamp(time: int) -> str | None:
    """None for a time that no calendar has."""
    try:
        moment = datetime.fromtimestamp(time / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
