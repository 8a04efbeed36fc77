"""Logs, and the steps that they are (spec 4.3)."""

import json
from typing import Any

from backend.entries import Entry, MarkEntry, MessageEntry
from backend.trajectory import Agent, Trajectory, json_pieces, project

TIME = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def said(role: str, content: Any = "", run: str | None = None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **({} if run is None else {"run": run}), **more}


def answered(run: str | None, *results: tuple[str, Any]) -> dict[str, Any]:
    parts = [{"type": "tool_result", "tool_call_id": call, "content": content} for call, content in results]
    return said("tool", parts, run)


def called(run: str | None, call: Any, name: Any = "f", **more: Any) -> dict[str, Any]:
    return {"type": "tool_call", "run": run, "id": call, "name": name, "arguments": {}, **more}


def used(run: str | None, read: Any, written: Any) -> dict[str, Any]:
    return {"type": "usage", "run": run, "input_tokens": read, "output_tokens": written}


def log_of(*lines: dict[str, Any]) -> list[Entry]:
    """Entries of messages and events, a second apart."""
    log: list[Entry] = []
    for n, line in enumerate(lines):
        time = TIME + 1000 * n
        if "role" in line:
            log.append(MessageEntry(n, time, line))
        else:
            log.append(MarkEntry(n, time, line["type"], {key: line[key] for key in line if key != "type"}))
    return log


def trajectory(*lines: dict[str, Any]) -> Trajectory:
    return project(log_of(*lines), "s", Agent("coder", "1.0"))


def to_json(found: Trajectory) -> bytes:
    return b"".join(json_pieces(found))


def steps(*lines: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps as JSON, without their numbers and times."""
    found: list[dict[str, Any]] = json.loads(to_json(trajectory(*lines)))["steps"]
    return [{key: step[key] for key in step if key not in ("step_id", "timestamp")} for step in found]


def step(source: str, message: str, run: str | None = None, **more: Any) -> dict[str, Any]:
    return {"source": source, "message": message, **({"extra": {"run": run}} if run else {}), **more}


def calls(*ids: str, name: str = "f") -> list[dict[str, Any]]:
    return [{"tool_call_id": call, "function_name": name, "arguments": {}} for call in ids]


def results(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"results": [{"source_call_id": call, "content": content} for call, content in pairs]}


def metrics(read: int, written: int) -> dict[str, Any]:
    return {"prompt_tokens": read, "completion_tokens": written}


TEXT = {"type": "text", "text": "a"}
IMAGE = {"type": "image", "url": "x"}
NAMED = [{"id": "c", "name": "f", "arguments": {}}]

CASES: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "each role is a source": (
        [said("system", "a"), said("user", "b", "r"), said("assistant", "c", "r")],
        [step("system", "a"), step("user", "b"), step("agent", "c", "r")],
    ),
    "text parts are joined with nothing": ([said("user", [TEXT, IMAGE, TEXT])], [step("user", "aa")]),
    "without text the message is empty": ([said("assistant", [IMAGE])], [step("agent", "")]),
    "an unknown role is nothing": ([said("critic", "a")], []),
    "a call and its result": (
        [said("assistant", "a", "r"), called("r", "c"), answered("r", ("c", "x"))],
        [step("agent", "a", "r", tool_calls=calls("c"), observation=results(("c", "x")))],
    ),
    "they belong to the last step so far": (
        [said("assistant", "a", "r"), called("r", "c"), answered("r", ("c", "x")), said("assistant", "b", "r")],
        [step("agent", "a", "r", tool_calls=calls("c"), observation=results(("c", "x"))), step("agent", "b", "r")],
    ),
    "before any text of the run they are a step": (
        [said("assistant", "a", "q"), called("r", "c"), answered("r", ("c", "x")), said("assistant", "b", "r")],
        [
            step("agent", "a", "q"),
            step("agent", "", "r", tool_calls=calls("c"), observation=results(("c", "x"))),
            step("agent", "b", "r"),
        ],
    ),
    "a call recorded after its result is its call all the same": (
        [said("assistant", "a", "r"), answered("r", ("c", "x")), called("r", "c")],
        [step("agent", "a", "r", tool_calls=calls("c"), observation=results(("c", "x")))],
    ),
    "several results in one message": (
        [called("r", "c"), called("r", "d"), answered("r", ("d", "y"), ("c", [TEXT, IMAGE, TEXT]))],
        [step("agent", "", "r", tool_calls=calls("d", "c"), observation=results(("d", "y"), ("c", "aa")))],
    ),
    "a result without a run is dropped": (
        [said("assistant", "a", "r"), called("r", "c"), answered(None, ("c", "x"))],
        [step("agent", "a", "r", tool_calls=calls("c"))],
    ),
    "and one that is not of the call's run": (
        [said("assistant", "a", "r"), called("r", "c"), answered("q", ("c", "x"))],
        [step("agent", "a", "r", tool_calls=calls("c"))],
    ),
    "and one of no call": ([said("assistant", "a", "r"), answered("r", ("c", "x"))], [step("agent", "a", "r")]),
    "and the second one of a call": (
        [called("r", "c"), answered("r", ("c", "x"), ("c", "y")), answered("r", ("c", "z"))],
        [step("agent", "", "r", tool_calls=calls("c"), observation=results(("c", "x")))],
    ),
    "and a run-less one of a run-less call": (
        [said("assistant", "a"), called(None, "c"), answered(None, ("c", "x"))],
        [step("agent", "a", tool_calls=calls("c"))],
    ),
    "and text of a tool message": (
        [said("assistant", "a", "r"), called("r", "c"), said("tool", "x", "r")],
        [step("agent", "a", "r", tool_calls=calls("c"))],
    ),
    "the same call id in two runs is two calls": (
        [called("r", "c"), called("q", "c"), answered("q", ("c", "y")), answered("r", ("c", "x"))],
        [
            step("agent", "", "q", tool_calls=calls("c"), observation=results(("c", "y"))),
            step("agent", "", "r", tool_calls=calls("c"), observation=results(("c", "x"))),
        ],
    ),
    "the same call id twice in a run is two calls": (
        [called("r", "c"), called("r", "c"), answered("r", ("c", "x")), answered("r", ("c", "y"))],
        [step("agent", "", "r", tool_calls=calls("c", "c"), observation=results(("c", "x"), ("c", "y")))],
    ),
    "a call without a result stays, in the last step of its run": (
        [called("r", "c"), said("assistant", "a", "r"), said("assistant", "b", "r"), said("assistant", "c", "q")],
        [step("agent", "a", "r"), step("agent", "b", "r", tool_calls=calls("c")), step("agent", "c", "q")],
    ),
    "or in one of its own at the end": (
        [called("r", "c"), called("r", "d"), said("user", "a", "r")],
        [step("user", "a"), step("agent", "", "r", tool_calls=calls("c", "d"))],
    ),
    "a run-less call goes to the only agent step": (
        [said("assistant", "a", "r"), called(None, "c")],
        [step("agent", "a", "r", tool_calls=calls("c"))],
    ),
    "of several to none": (
        [said("assistant", "a", "r"), said("assistant", "b", "q"), called(None, "c")],
        [step("agent", "a", "r"), step("agent", "b", "q"), step("agent", "", tool_calls=calls("c"))],
    ),
    "a call that its message names stands there": (
        [said("assistant", "a", "r", tool_calls=NAMED), said("assistant", "b", "r"), answered("r", ("c", "x"))],
        [step("agent", "a", "r", tool_calls=calls("c"), observation=results(("c", "x"))), step("agent", "b", "r")],
    ),
    "once, if it is an event too": (
        [called("r", "c", "g"), said("assistant", "a", "r", tool_calls=NAMED), answered("r", ("c", "x"))],
        [step("agent", "a", "r", tool_calls=calls("c", name="g"), observation=results(("c", "x")))],
    ),
    "and once if it was answered before": (
        [called("r", "c"), answered("r", ("c", "x")), said("assistant", "a", "r", tool_calls=NAMED)],
        [step("agent", "", "r", tool_calls=calls("c"), observation=results(("c", "x"))), step("agent", "a", "r")],
    ),
    "a tool message can name its call itself": (
        [called("r", "c"), said("tool", "x", "r", tool_call_id="c")],
        [step("agent", "", "r", tool_calls=calls("c"), observation=results(("c", "x")))],
    ),
    "a result can be an event": (
        [called("r", "c"), {"type": "tool_result", "run": "r", "tool_call_id": "c", "content": "x"}],
        [step("agent", "", "r", tool_calls=calls("c"), observation=results(("c", "x")))],
    ),
    "a result that is both counts once": (
        [
            called("r", "c"),
            {"type": "tool_result", "run": "r", "tool_call_id": "c", "content": "event"},
            answered("r", ("c", "message")),
        ],
        [step("agent", "", "r", tool_calls=calls("c"), observation=results(("c", "message")))],
    ),
    "a call without id or name is none": (
        [said("user", "a"), called("r", None), called("r", "c", None), called("r", 1)],
        [step("user", "a")],
    ),
    "arguments that are no object are a value": (
        [called("r", "c", arguments=[1])],
        [step("agent", "", "r", tool_calls=[calls("c")[0] | {"arguments": {"value": [1]}}])],
    ),
    "usage goes to the only step of its run": (
        [said("assistant", "a", "r"), said("assistant", "b", "q"), used("r", 10, 1)],
        [step("agent", "a", "r", metrics=metrics(10, 1)), step("agent", "b", "q")],
    ),
    "in a sum": (
        [used("r", 10, 1), said("assistant", "a", "r"), used("r", 5, 2)],
        [step("agent", "a", "r", metrics=metrics(15, 3))],
    ),
    "not if the run has two steps": (
        [said("assistant", "a", "r"), said("assistant", "b", "r"), used("r", 10, 1)],
        [step("agent", "a", "r"), step("agent", "b", "r")],
    ),
    "nor if it has none": ([said("assistant", "a", "r"), used("q", 10, 1)], [step("agent", "a", "r")]),
    "nor without a run": ([said("assistant", "a"), used(None, 10, 1)], [step("agent", "a")]),
    "the step of a lone call counts": (
        [called("r", "c"), used("r", 10, 1)],
        [step("agent", "", "r", tool_calls=calls("c"), metrics=metrics(10, 1))],
    ),
    "usage that is no count is none": (
        [said("assistant", "a", "r"), used("r", "many", 1), used("r", -1, 1), used("r", True, 1)],
        [step("agent", "a", "r")],
    ),
    "other events are nothing": (
        [
            {"type": "start", "run": "r", "id": "r", "client_id": "x", "scope": "private", "cwd": None},
            {"type": "message", "run": "r", "content": "a"},
            {"type": "state", "from": "idle", "state": "active"},
            {"type": "done", "run": "r", "status": "ok"},
        ],
        [],
    ),
}
