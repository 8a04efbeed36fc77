"""Marks: the built-in ones with their data, and those that are defined at run time (spec 2.3).

``Marks`` is a registry that one process fills while it starts (configuration) or through the API; it does not
store anything. The event types of spec 1.5 are marks too: ``backend.line_rules`` judges those.
"""

from collections.abc import Mapping
from typing import Any, Literal

from backend.checks import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    NUMBER,
    OBJECT,
    STRING,
    Check,
    Shape,
    fault_of,
    one_of,
)
from backend.errors import SessionError
from backend.line_shapes import EVENTS

FieldType = Literal["string", "number", "boolean"]

BUILT_IN: Mapping[str, Shape] = {
    "prompt": Shape({"header": OBJECT, "turn": COUNT, "step": COUNT, "reason": STRING, "sources": ANYTHING}),
    "preset/selected": Shape({"presetId": STRING, "revision": STRING}),
    "request/context": Shape({"provider": STRING, "model": STRING}, {"contextWindow": NUMBER}),
    "agent/input-enqueued": Shape(
        {
            "messageId": STRING,
            "message": ANYTHING,
            "target": one_of("next-turn", "next-step"),
            "wakeup": BOOLEAN,
            "enqueuedAt": NUMBER,
        }
    ),
    "agent/input-admitted": Shape({"messageId": STRING, "n": COUNT}),
    "agent/input-discarded": Shape({"messageId": STRING, "reason": STRING}),
    "turn-skip": Shape({"reason": STRING}, {"detail": STRING, "turn": NUMBER}),
}

_FIELD_TYPES: Mapping[str, Check] = {"string": STRING, "number": NUMBER, "boolean": BOOLEAN}


class Marks:
    """The marks that may be written: built in, and defined on this instance."""

    def __init__(self) -> None:
        self._shapes = dict(BUILT_IN)

    def define(self, name: str, schema: Mapping[str, FieldType]) -> None:
        """Adds a mark, or replaces one defined before; every key of ``schema`` is needed.

        ``SessionError`` for an empty name, a built-in one, that of an event type, or a type other than string,
        number, boolean.
        """
        if not name or name in BUILT_IN or name in EVENTS:
            raise SessionError(f"mark {name!r} cannot be defined: the name is empty, built in or that of an event")
        unknown = sorted(key for key, kind in schema.items() if kind not in _FIELD_TYPES)
        if unknown:
            raise SessionError(f"mark {name!r}: {unknown[0]!r} must be string, number or boolean")
        self._shapes[name] = Shape({key: _FIELD_TYPES[kind] for key, kind in schema.items()})

    def fault(self, name: str, data: Any) -> str | None:
        """Why this mark may not be written; None if it may."""
        shape = self._shapes.get(name)
        if shape is None:
            return "no such mark is defined"
        if type(data) is not dict:
            return "data must be an object"
        return fault_of(shape, data)
