"""The entries that the daemon itself makes of a run (spec 3.3), and frames that go with them. Pure."""

from collections.abc import Mapping
from typing import Any

from backend.lines import flat_line, meta_line, parse_line, state_line
from backend.rows import Line, Row, Session, Stream
from backend.strict_json import compact, lenient_object


def made(stream: Stream, value: Mapping[str, Any]) -> Line:
    """A line of compact JSON, judged as one from outside (``InvalidValue``, ``LineTooLong``)."""
    return parse_line(stream, compact(value))


def mark(name: str, data: Mapping[str, Any]) -> Line:
    """A mark, by its name and data."""
    return made("events", {"type": "mark", "name": name, "data": data})


def user_message(run: str, text: str) -> Line:
    """What the client sent."""
    return flat_line("messages", {"content": text, "role": "user", "run": run})


def assistant_text(run: str, text: str, **more: Any) -> Line:
    """An assistant message of one text part."""
    content = [{"text": text, "type": "text"}]
    return flat_line("messages", {"content": content, "role": "assistant", "run": run, **more})


def start(run: str, client_id: str, scope: str, cwd: str) -> Line:
    """The beginning of a run."""
    value = {"client_id": client_id, "cwd": cwd, "id": run, "run": run, "scope": scope, "type": "start"}
    return flat_line("events", value)


def error(run: str, code: str, message: str) -> Line:
    """Why a run failed."""
    return flat_line("events", {"code": code, "message": message, "run": run, "type": "error"})


def done(run: str, status: str) -> Line:
    """The end of a run."""
    return flat_line("events", {"run": run, "status": status, "type": "done"})


def state(session: Session, new: str) -> list[Line]:
    """The event of a change of state; none where it is that already."""
    return [] if session.state == new else [state_line(session.state, new)]


def meta(session: Session, **known: str | None) -> list[Line]:
    """The event by which meta.json says what is known, beside what it says already; none where that is all."""
    present = lenient_object(session.meta.encode())
    line = meta_line(present | {key: value for key, value in known.items() if value is not None})
    return [] if line.meta == session.meta else [line]


def message_frame(raw: bytes) -> bytes:
    """A line of messages.jsonl as a frame of type ``message``."""
    return compact(lenient_object(raw) | {"type": "message"})


def frame_of(row: Row) -> bytes:
    """A stored entry as a frame: events as they are, messages with their type, and what is no JSON object as text."""
    if row.stream == "events":
        return row.raw
    try:
        return message_frame(row.raw)
    except ValueError:
        return compact({"type": "malformed", "text": row.raw.decode(errors="replace")})
