"""What a line of messages.jsonl or events.jsonl must hold (spec 1.5): its shape, and what relates its fields.

Pure; judges decoded objects only (``backend.strict_json`` has judged the bytes).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from backend.checks import Shape, fault_of
from backend.errors import InvalidValue
from backend.line_shapes import EVENTS, MESSAGE, META
from backend.marks import Marks
from backend.strict_json import compact

MAX_META = 64 << 10


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
