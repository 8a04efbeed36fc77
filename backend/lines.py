"""A line of messages.jsonl or events.jsonl ⇄ an entry of the log; the door for lines from outside.

Pure. ``judge`` judges a line by spec 1.5, ``parse_line`` also says what it changes; ``line_of`` and ``entry_of`` are
the two inverse directions of spec 2.1; ``foreign_line`` takes lines of an imported history as they are. The rules
themselves are ``backend.line_rules``; an unfinished line is judged by ``backend.line_prefix``.
Errors name fields and never quote contents.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from backend.checks import NAME, STABLE_PATH
from backend.entries import CutEntry, Entry, MarkEntry, MessageEntry, NewCut, NewEntry, NewMark, NewMessage
from backend.errors import InvalidValue, LineTooLong, SessionError, ValueTooBig
from backend.line_rules import MAX_META, Rules, event_fault, message_fault, meta_fault
from backend.line_shapes import EVENTS, STATE
from backend.marks import Marks
from backend.rows import Line, Row, Stream
from backend.strict_json import (
    MAX_FOREIGN_LINE,
    MAX_LINE,
    api_json,
    compact,
    lenient_object,
    strict_document,
    strict_object,
    text_bytes,
)

BUILT_IN_MARKS = Marks()


def parse_line(stream: Stream, raw: bytes, *, scope: str | None = None, marks: Marks = BUILT_IN_MARKS) -> Line:
    """The line that ``raw`` (without its newline) is, by all of spec 1.5; parameters and errors as ``judge``.

    A cut's upper bound is left to the store, which knows n (``Line.before``).
    """
    value = judge(stream, raw, scope=scope, marks=marks)
    line = _line(stream, raw, value)
    return line if line.kind != "cut" else msgspec.structs.replace(line, before=value["before"])


def judge(stream: Stream, raw: bytes, *, scope: str | None = None, marks: Marks = BUILT_IN_MARKS) -> dict[str, Any]:
    """The object that a line holds, by all of spec 1.5.

    ``scope`` is the session's (a meta event of another one is refused; None: any). ``InvalidValue``, or
    ``LineTooLong`` above 1 MiB.
    """
    value = strict_object(raw)
    if fault := fault_in(stream, value, scope, marks):
        raise InvalidValue(fault)
    return value


def flat_line(stream: Stream, value: dict[str, Any]) -> Line:
    """The line of an object that was made here of strict JSON, and nests no deeper than that; errors as ``judge``."""
    raw = compact(value)
    if len(raw) > MAX_LINE:
        raise LineTooLong("a line has more than 1 MiB: split the content over several lines")
    if fault := fault_in(stream, value, None):
        raise InvalidValue(fault)
    return _line(stream, raw, value)


def fault_in(stream: Stream, value: dict[str, Any], scope: str | None, marks: Marks = BUILT_IN_MARKS) -> str | None:
    """What of an object is not as spec 1.5 has it for a stream; None if all is well. ``scope`` as for ``judge``."""
    fault = message_fault(value) if stream == "messages" else event_fault(value, Rules(scope, marks))
    return f"{stream}.jsonl: {fault}" if fault else None


def foreign_fault(raw: bytes) -> str | None:
    """Why a line of a foreign file is malformed (spec 1.5, Unprovable history); None if it is not."""
    if len(raw) > MAX_FOREIGN_LINE:
        return "it has more than 16 MiB"
    if not raw.strip():
        return "it is blank"
    try:
        lenient_object(raw)
    except UnicodeDecodeError:
        return "it is not UTF-8"
    except ValueError:
        return "it is not one JSON object"
    return None


def foreign_line(stream: Stream, raw: bytes) -> Line:
    """A line of a foreign file, served as it is; only well-formed values in it change anything.

    A malformed one counts as a mark without name and facts.
    """
    if foreign_fault(raw):
        return Line(stream, raw, "mark", "")
    return _line(stream, raw, lenient_object(raw))


def text_of(raw: bytes) -> str:
    """What latest.md says of a message line, without its final newline; empty where it has no text."""
    return text_bytes(content_text(lenient_object(raw).get("content"))).decode()


def content_text(content: Any) -> str:
    """The text of a message's content: the string, or its text parts joined with nothing; empty for anything else."""
    if type(content) is str:
        return content
    if type(content) is not list:
        return ""
    parts = (part.get("text") for part in content if type(part) is dict and part.get("type") == "text")
    return "".join(text for text in parts if type(text) is str)


def state_line(old: str, new: str) -> Line:
    """The event that a change of ``state`` records (spec 1.4)."""
    return _made("events", {"type": "state", "from": old, "state": new})


def cwd_line(cwd: str) -> Line:
    """The event that a write to ``cwd`` records (spec 1.4)."""
    return _made("events", {"type": "cwd", "cwd": cwd})


def meta_line(meta: Mapping[str, Any]) -> Line:
    """The event that a write to ``meta.json`` records (spec 1.4)."""
    return _made("events", {"type": "meta", "meta": meta})


def parse_state(content: bytes) -> str:
    """The state that a write to ``state`` means; the newline is optional (spec 1.4)."""
    state = _value(content)
    if not STATE.holds(state):
        raise InvalidValue(f"state must be {STATE.what}")
    return state


def parse_cwd(content: bytes) -> str:
    """The path that a write to ``cwd`` means; the newline is optional (spec 1.4, 1.6)."""
    cwd = _value(content)
    if not STABLE_PATH.holds(cwd):
        raise InvalidValue(f"cwd must be {STABLE_PATH.what}")
    return cwd


def validate_meta(content: bytes, scope: str | None = None) -> dict[str, Any]:
    """The object that a write to ``meta.json`` means (spec 1.4): ``InvalidValue``, ``ValueTooBig`` above 64 KiB."""
    if len(content) > MAX_META:
        raise ValueTooBig("meta.json must have at most 64 KiB")
    meta = strict_document(content)
    if fault := meta_fault(meta, scope):
        raise InvalidValue(f"meta.json: {fault}")
    return meta


def line_of(entry: NewEntry) -> Line:
    """The line that a new entry is stored as (spec 2.1); ``SessionError`` for what no line can say.

    API entries need only a role and JSON safety (spec 2.7). A mark called like an event type takes that
    event's form if it has its fields, else the form of any other mark.
    """
    match entry:
        case NewMessage():
            return _message_line(entry)
        case NewMark():
            return _mark_line(entry)
        case NewCut(data):
            if type(data) is dict and "type" in data:
                raise SessionError("a cut's data must not hold a type")
            return Line("events", api_json(_object(data) | {"type": "cut"}), "cut", "cut")


def entry_of(row: Row) -> Entry:
    """The entry that a stored row is (spec 2.1); the inverse of ``line_of``.

    A malformed foreign line is a mark without a name whose data is its text.
    """
    try:
        value = lenient_object(row.raw)
    except ValueError:
        return MarkEntry(row.n, row.time, "", row.raw.decode(errors="replace"))
    if row.kind == "message":
        meta = value.pop("meta") if type(value.get("meta")) is dict else None
        return MessageEntry(row.n, row.time, value, meta)
    if row.kind == "cut":
        del value["type"]
        return CutEntry(row.n, row.time, value)
    name, data = _mark_of(value)
    return MarkEntry(row.n, row.time, name, data)


def _line(stream: Stream, raw: bytes, value: dict[str, Any]) -> Line:
    """A line and what it changes, whether or not it was judged before."""
    if stream == "messages":
        return _message_facts(raw, value)
    kind = value.get("type")
    if kind == "cut":
        return Line(stream, raw, "cut", "cut")
    if type(kind) is str and kind not in _FACTUAL:
        return Line(stream, raw, "mark", kind)
    state, cwd, meta = _event_facts(value)
    run, client = _run_facts(value)
    key = _mark_of(value)[0]
    return Line(stream, raw, "mark", key, state=state, cwd=cwd, meta=meta, run=run, client=client)


_FACTUAL = frozenset(("state", "cwd", "start", "meta", "done", "mark"))
"""Events that change more than the log."""


def _message_facts(raw: bytes, value: dict[str, Any]) -> Line:
    role = value.get("role")
    size = len(text_bytes(content_text(value.get("content")))) + 1 if role == "assistant" else 1
    run = value.get("run") if role == "user" else None
    return Line(
        "messages",
        raw,
        "message",
        role if type(role) is str else "",
        latest_size=size if size > 1 else None,
        run=run if NAME.holds(run) else None,
    )


def _event_facts(value: dict[str, Any]) -> tuple[str | None, str | None, str | None]:
    """The state, cwd and meta that an event records."""
    match value:
        case {"type": "state", "state": state} if STATE.holds(state):
            return state, None, None
        case {"type": "cwd" | "start", "cwd": cwd} if STABLE_PATH.holds(cwd):
            return None, cwd, None
        case {"type": "meta", "meta": dict(meta)}:
            return None, None, compact(meta).decode()
    return None, None, None


def _run_facts(value: dict[str, Any]) -> tuple[str | None, str | None]:
    """The run, and the client id, of an event that begins or ends one."""
    match value:
        case {"type": "start", "run": run, "client_id": client} if NAME.holds(run) and NAME.holds(client):
            return run, client
        case {"type": "done", "run": run} if NAME.holds(run):
            return run, None
    return None, None


def _mark_of(value: dict[str, Any]) -> tuple[str, Any]:
    """Name and data of a mark's line; one without a type is a mark without a name."""
    match value:
        case {"type": "mark", "name": str(name), "data": data}:
            return name, data
        case {"type": str(name)}:
            return name, {key: item for key, item in value.items() if key != "type"}
    return "", value


def _message_line(entry: NewMessage) -> Line:
    message = _object(entry.message)
    if type(message.get("role")) is not str:
        raise SessionError("a message needs a role")
    if type(message.get("meta")) is dict or ("meta" in message and entry.meta is not None):
        raise SessionError("a message's meta belongs to its entry")
    value = message if entry.meta is None else message | {"meta": _object(entry.meta)}
    return _message_facts(api_json(value), value)


def _mark_line(entry: NewMark) -> Line:
    if type(entry.name) is not str:
        raise SessionError("a mark needs a name")
    if entry.name in EVENTS and type(entry.data) is dict and "type" not in entry.data:
        event = {**entry.data, "type": entry.name}
        raw = api_json(event)
        if entry.name not in ("mark", "cut") and event_fault(event, Rules(None, BUILT_IN_MARKS)) is None:
            return _line("events", raw, event)
    return Line("events", api_json({"type": "mark", "name": entry.name, "data": entry.data}), "mark", entry.name)


def _object(value: object) -> dict[str, Any]:
    if type(value) is not dict:
        raise SessionError("the payload must be an object")
    return value


def _made(stream: Stream, value: dict[str, Any]) -> Line:
    return _line(stream, compact(value), value)


def _value(content: bytes) -> str:
    try:
        return content.removesuffix(b"\n").decode()
    except UnicodeDecodeError:
        raise InvalidValue("a value must be UTF-8") from None
