"""What of an entry is searched: what people and models said, what tools were given and what they answered. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from backend.entries import CutEntry, Entry, MarkEntry, MessageEntry

_TEXTS = ("text", "thinking")
_SPOKEN = ("message", "reasoning_message")


def text_of(entry: Entry) -> str:
    """The text of an entry, its parts on lines of their own; empty where there is nothing to search for."""
    return "\n".join(_parts(entry))


def _parts(entry: Entry) -> Iterator[str]:
    match entry:
        case MessageEntry(message=message):
            yield from _message(message)
        case CutEntry(data={"summary": list(summary)}):
            for message in summary:
                yield from _message(message)
        case MarkEntry(name="tool_call", data=data):
            yield from _call(data)
        case MarkEntry(name="error", data={"message": str(text)}):
            yield text
        case MarkEntry(name=name, data=data) if name in _SPOKEN:
            yield from _message(data)


def _message(message: Any) -> Iterator[str]:
    if not isinstance(message, Mapping):
        return
    yield from _content(message.get("content"))
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        yield from _call(call)


def _content(content: Any) -> Iterator[str]:
    """A string, or the texts of an array of parts; a tool's result is content again."""
    todo = [content]
    while todo:
        match todo.pop():
            case str(text):
                yield text
            case list(parts):
                todo.extend(reversed(parts))
            case dict(part):
                yield from (part[key] for key in _TEXTS if isinstance(part.get(key), str))
                todo.append(part.get("content"))


def _call(call: Any) -> Iterator[str]:
    if isinstance(call, Mapping):
        yield from _strings([call.get("name"), call.get("arguments")])


def _strings(value: Any) -> Iterator[str]:
    """All strings of a JSON value, in order; keys are not among them."""
    todo = [value]
    while todo:
        match todo.pop():
            case str(text):
                yield text
            case list(items):
                todo.extend(reversed(items))
            case dict(items):
                todo.extend(reversed(items.values()))
