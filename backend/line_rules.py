"""What a line of messages.jsonl or events.jsonl must hold: spec 1.5 as tables.

Pure; judges decoded objects only (``backend.strict_json`` has judged the bytes). A new event type is a new row.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from backend.checks import (
    ANYTHING,
    ARRAY,
    COUNT,
    ERRNO_NAME,
    MODEL_NAME,
    NAME,
    NULL,
    NUMBERS,
    OBJECT,
    STABLE_PATH,
    STRING,
    Check,
    Shape,
    array_of,
    either,
    fault_of,
    one_of,
    shaped,
)
from backend.errors import InvalidValue
from backend.marks import Marks
from backend.strict_json import compact

MAX_META = 64 << 10

STATE = one_of("active", "idle", "done", "error")
ROLE = one_of("system", "user", "assistant", "tool")
SCOPE = one_of("private", "shared", "temp")

_TEXT_OR_ARRAY = either(STRING, ARRAY)
_PARTS: Mapping[str, Shape] = {
    "text": Shape({"text": STRING}),
    "image": Shape({}, {"path": STRING, "url": STRING}),
    "tool_result": Shape({"tool_call_id": STRING, "content": _TEXT_OR_ARRAY}),
}


def _is_part(part: Any) -> bool:
    if type(part) is not dict or type(part.get("type")) is not str:
        return False
    shape = _PARTS.get(part["type"])
    if part["type"] == "image" and "path" not in part and "url" not in part:
        return False
    return shape is None or fault_of(shape, part) is None


PART = Check(_is_part, "an object with a type and the fields it needs")
CONTENT = either(STRING, array_of(PART, "an array of parts, each with a type and the fields it needs"))
TOOL_CALL = shaped(Shape({"id": STRING, "name": STRING, "arguments": OBJECT}), "a tool call")

USAGE = shaped(Shape({}, {"inputTokens": COUNT, "outputTokens": COUNT, "totalTokens": COUNT}), "counts of tokens")
MESSAGE_META = shaped(
    Shape({}, {"turn": COUNT, "step": COUNT, "usage": USAGE, "finish": STRING, "timing": NUMBERS}),
    "an object whose turn, step, usage, finish and timing have their types",
)

MESSAGE = Shape(
    {"role": ROLE, "content": CONTENT},
    {
        "run": NAME,
        "id": STRING,
        "name": STRING,
        "tool_call_id": STRING,
        "tool_calls": array_of(TOOL_CALL, "an array of objects with id, name and arguments"),
        "meta": MESSAGE_META,
    },
)
_SUMMARY = array_of(shaped(MESSAGE, "a message"), "an array of messages")

META = Shape({}, {"client": STRING, "model": MODEL_NAME, "scope": SCOPE})
CUT = Shape({"before": COUNT, "summary": _SUMMARY, "reason": STRING})

_SAID = {"role": ROLE, "content": CONTENT}


def _run(**needs: Check) -> Shape:
    return Shape({"run": NAME, **needs})


EVENTS: Mapping[str, Shape] = {
    "start": _run(id=NAME, client_id=NAME, scope=SCOPE, cwd=either(STABLE_PATH, NULL)),
    "delta": _run(text=STRING),
    "reasoning_delta": _run(text=STRING),
    "message": _run(**_SAID),
    "reasoning_message": _run(**_SAID),
    "tool_call": _run(id=STRING, name=STRING, arguments=OBJECT),
    "tool_result": _run(tool_call_id=STRING, content=_TEXT_OR_ARRAY),
    "usage": _run(input_tokens=COUNT, output_tokens=COUNT),
    "error": _run(code=ERRNO_NAME, message=STRING),
    "done": _run(status=one_of("ok", "error", "cancelled")),
    "state": Shape({"from": STATE, "state": STATE}),
    "cwd": Shape({"cwd": STABLE_PATH}),
    "meta": Shape({"meta": shaped(META, "an object with a string client, a model name model and a scope")}),
    "mark": Shape({"name": STRING, "data": ANYTHING}),
    "cut": CUT,
    "checkpoint": Shape({"workspace": STRING, "snapshot": STRING}),
}


class Rules(NamedTuple):
    """What the rules depend on besides the line: the session's scope (None: any) and the defined marks."""

    scope: str | None
    marks: Marks


def message_fault(message: Mapping[str, Any]) -> str | None:
    """Why an object is no line of messages.jsonl; None if it is one."""
    return fault_of(MESSAGE, message)


def event_fault(event: Mapping[str, Any], rules: Rules) -> str | None:
    """Why an object is no line of events.jsonl; None if it is one."""
    return fault_of(event_shape(event.get("type")), event) or _relation_fault(event, rules)


def event_shape(kind: object) -> Shape:
    """The fields of an event of that type; ``InvalidValue`` where there is no such type."""
    shape = EVENTS.get(kind) if type(kind) is str else None
    if shape is None:
        raise InvalidValue("events.jsonl: type is missing or not a known event type")
    return shape


def meta_fault(meta: Mapping[str, Any], scope: str | None) -> str | None:
    """Why an object may not be meta.json of a session of that scope (spec 1.4); None if it may."""
    if fault := fault_of(META, meta):
        return fault
    if scope is not None and meta.get("scope", scope) != scope:
        return "scope must be the session's"
    if len(compact(meta)) > MAX_META:
        return "meta must have at most 64 KiB"
    return None


def mark_fault(name: str, data: Any, marks: Marks) -> str | None:
    """Why a mark may not be written through the API (spec 2.3); None if it may."""
    if name in EVENTS and name not in ("mark", "cut"):
        return (
            event_fault({**data, "type": name}, Rules(None, marks)) if type(data) is dict else "data must be an object"
        )
    return marks.fault(name, data)


def _relation_fault(event: Mapping[str, Any], rules: Rules) -> str | None:
    """Rules that look at several fields, or beyond the line."""
    kind = event["type"]
    if kind == "start" and event["id"] != event["run"]:
        return "id must equal run"
    if kind == "meta":
        return meta_fault(event["meta"], rules.scope)
    if kind == "mark":
        return rules.marks.fault(event["name"], event["data"])
    return None
