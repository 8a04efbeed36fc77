"""A session as Markdown for people to read: ``context/transcript.md`` (spec 1.7), entry by entry.

Pure: an entry's text depends on nothing but the entry, so its bytes can be counted once and never again. Roles, times,
texts, tool calls and their results, cuts, and of the marks those that say why something is missing or went wrong.
Contents cannot pass for anything that is ours: a heading of ours begins ``## N ·``, and a line of a content that does
is escaped, as is HTML; code blocks that a text leaves open are closed, and control characters are made visible.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from backend.entries import CutEntry, Entry, MarkEntry, MessageEntry
from backend.printable import escaped, escaped_name

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)$")
_SPECIAL = re.compile(r"^ {0,3}(?:```|~~~|#*\s*\d+ ·|<)", re.MULTILINE)
_OURS = re.compile(r"( {0,3})(#*\s*\d+ ·|<)")
_TICKS = re.compile("`{3,}")


def title(name: str) -> bytes:
    """What the transcript of a session of that name begins with."""
    return f"# Session {escaped_name(name)}\n\n".encode()


def entry_text(entry: Entry) -> bytes:
    """What an entry adds, blank line included; nothing for most marks."""
    blocks = list(_blocks(entry))
    return "".join(f"{block}\n\n" for block in blocks).encode()


def _blocks(entry: Entry) -> Iterator[str]:
    match entry:
        case MessageEntry(message=message):
            yield _heading(entry, str(message.get("role")))
            yield from _message(message)
        case CutEntry(data=data):
            yield _heading(entry, f"cut ({data.get('reason')})")
            yield "From here on the model is sent this instead of all that is above:"
            for message in _objects(data.get("summary")):
                yield _quoted("\n\n".join([f"**{_word(message.get('role'))}**:", *_message(message)]))
        case MarkEntry(name=name, data=dict(data)) if name in _MARKS:
            for number, block in enumerate(_MARKS[name](data)):
                yield block if number else f"{_heading(entry, name)}\n\n{block}"


def _heading(entry: Entry, what: str) -> str:
    return f"## {entry.n} · {escaped_name(what)} · {_time_text(entry.time)}"


def _time_text(ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(" ", "seconds")[:19]
    except OverflowError:
        return f"{ms} ms"


def _message(message: dict[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if message.get("role") == "tool" and isinstance(content, str):
        yield from _result({"tool_call_id": message.get("tool_call_id"), "content": content})
    elif isinstance(content, str):
        yield from _text(content)
    for part in _objects(content):
        yield from _part(part)
    for call in _objects(message.get("tool_calls")):
        yield from _call(call)


def _part(part: dict[str, Any]) -> Iterator[str]:
    match part:
        case {"type": "text", "text": str(text)}:
            yield from _text(text)
        case {"type": "thinking", "thinking": str(text)}:
            yield from map(_quoted, _text(text))
        case {"type": "tool_result"}:
            yield from _result(part)
        case {"type": "tool_use"}:
            yield from _call(part | {"arguments": part.get("input")})
        case _:
            where = part.get("path") or part.get("url")
            yield f"[{_word(part.get('type'))}{f' {_word(where)}' if isinstance(where, str) else ''}]"


def _call(call: dict[str, Any]) -> Iterator[str]:
    yield f"Call of **{_word(call.get('name'))}** ({_word(call.get('id'))}):"
    yield _fenced(json.dumps(call.get("arguments"), ensure_ascii=False, indent=2), "json")


def _result(part: dict[str, Any]) -> Iterator[str]:
    yield f"Result ({_word(part.get('tool_call_id'))}):"
    content = part.get("content")
    if isinstance(content, str):
        yield _fenced(content)
    for inner in _objects(content):
        text = inner.get("text")
        yield from [_fenced(text)] if isinstance(text, str) else _part(inner)


def _error(data: dict[str, Any]) -> Iterator[str]:
    yield f"**{_word(data.get('code'))}**: {_word(data.get('message'))}"


def _done(data: dict[str, Any]) -> Iterator[str]:
    if data.get("status") != "ok":
        yield f"The run ended: {_word(data.get('status'))}"


def _checkpoint(data: dict[str, Any]) -> Iterator[str]:
    yield f"Snapshot **{_word(data.get('snapshot'))}** of {_word(data.get('workspace'))}"


def _skip(data: dict[str, Any]) -> Iterator[str]:
    yield f"A turn was left out: {_word(data.get('reason'))}"


_MARKS = {
    "tool_call": _call,
    "tool_result": _result,
    "error": _error,
    "done": _done,
    "checkpoint": _checkpoint,
    "turn-skip": _skip,
}


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _word(value: object) -> str:
    """A value in one of our own lines."""
    return escaped_name(str(value)).replace("`", "\\`").replace("<", "\\<").replace("*", "\\*")


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.split("\n"))


def _fenced(text: str, language: str = "") -> str:
    """A code block that nothing in it can end."""
    ticks = "`" * max([3, *(len(run) + 1 for run in _TICKS.findall(text))])
    return f"{ticks}{language}\n{escaped(text)}\n{ticks}"


def _text(text: str) -> Iterator[str]:
    """Markdown of a content, as it is but for what could pass for ours."""
    if _SPECIAL.search(text):
        yield "\n".join(_lines(escaped(text).split("\n")))
    elif text:
        yield escaped(text)


def _lines(lines: list[str]) -> Iterator[str]:
    fence = ""
    for line in lines:
        found = _FENCE.match(line)
        if fence:
            ends = found is not None and found[1].startswith(fence) and not found[2].strip()
            fence = "" if ends else fence
            yield line
        else:
            fence = found[1] if found else ""
            yield f"{ours[1]}\\{line[ours.end(1) :]}" if (ours := _OURS.match(line)) else line
    if fence:
        yield fence
