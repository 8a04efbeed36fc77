"""What a session takes from its callers: entries are copied when they are handed over, and judged when appended.

Pure. Implements the refusals of specs 2.2–2.4 and 2.7 for the API; lines from outside are ``backend.lines``' matter.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from backend.checks import COUNT, STRING, Shape, array_of, fault_of, shaped
from backend.entries import CutEntry, MarkEntry, MessageEntry, NewCut, NewEntry, NewMark, NewMessage
from backend.errors import SessionError
from backend.line_rules import mark_fault
from backend.line_shapes import MESSAGE_META
from backend.lines import entry_of, line_of
from backend.marks import Marks
from backend.rows import Row

_MESSAGE = shaped(Shape({"role": STRING}), "a message")
_CUT = Shape(
    {"before": COUNT, "summary": array_of(_MESSAGE, "an array of messages, each with a role"), "reason": STRING}
)


def new_entry(entry: NewEntry | Mapping[str, Any]) -> NewEntry:
    """A copy that shares nothing; ``entry`` may be the JSON object of spec 2.1. ``SessionError`` unless it is JSON."""
    return _copy(_converted(entry) if isinstance(entry, Mapping) else entry)


def _converted(entry: Mapping[str, Any]) -> NewEntry:
    try:
        converted: NewEntry = msgspec.convert(dict(entry), NewEntry)
    except msgspec.ValidationError as error:
        raise SessionError(f"not an entry: {error}") from None
    return converted


def _copy(entry: NewEntry) -> NewEntry:
    line = line_of(entry)
    match entry_of(Row(0, 0, line.kind, line.stream, line.raw)):
        case MessageEntry(message=message, meta=meta):
            return NewMessage(message, meta, entry.time)
        case MarkEntry(name=name, data=data):
            return NewMark(name, data, entry.time)
        case CutEntry(data=data):
            return NewCut(data, entry.time)


def judge(entry: NewEntry, n: int, marks: Marks) -> None:
    """Refuses (``SessionError``) an entry that may not become number ``n``."""
    if entry.time is not None and not COUNT.holds(entry.time):
        raise SessionError("time must be ms since the epoch")
    if fault := _fault(entry, n, marks):
        raise SessionError(fault)


def _fault(entry: NewEntry, n: int, marks: Marks) -> str | None:
    match entry:
        case NewMessage(meta=meta):
            return None if meta is None or MESSAGE_META.holds(meta) else f"meta must be {MESSAGE_META.what}"
        case NewMark(name=name, data=data):
            fault = mark_fault(name, data, marks)
            return fault and f"mark {name!r}: {fault}"
        case NewCut(data=data):
            if fault := fault_of(_CUT, data):
                return f"cut: {fault}"
            return None if data["before"] <= n else f"cut: before must be at most {n}, its own number"
