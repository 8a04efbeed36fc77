"""The tables of spec 1.5: what a line of messages.jsonl or events.jsonl must hold. A new event type is a new row.

Pure; shapes of decoded objects. What looks at several fields, or beyond the line, is in ``backend.line_rules``.
"""

from collections.abc import Mapping
from typing import Any

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
