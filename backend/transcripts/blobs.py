"""Parts that are too big for a line: out into blobs, and back (spec 4.2). Pure.

A line has at most 1 MiB. What exceeds it is kept as compact JSON under its digest, and the line names it:
``{"type":"blob","path":"data/blob/<sha256>","sha256":…,"bytes":…}``. A blob stands for a part of a message's content
(within a tool_result too, so that the result is still paired), for a call's ``arguments``, or for a part of a message
in a cut's summary; one that holds an array, for several parts. ``encoded`` and ``restored`` are inverse for the lines
that ``encoded`` makes.
"""

import hashlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from backend.strict_json import MAX_LINE, compact, lenient_object

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Blob(NamedTuple):
    """JSON that is stored as ``data/blob/<sha256>`` of the agent."""

    sha256: str
    content: bytes


Load = Callable[[str], bytes]


def encoded(value: dict[str, Any]) -> tuple[bytes, list[Blob]]:
    """The compact line of a message or event; its biggest parts become blobs until it is at most 1 MiB."""
    raw = compact(value)
    if len(raw) <= MAX_LINE:
        return raw, []
    if "arguments" in value:
        blob = _blob(value["arguments"])
        return compact(value | {"arguments": _reference(blob)}), [blob]
    messages = [message | {"content": _parts(message.get("content"))} for message in _messages(value)]
    original, value = value, _with_messages(value, messages)
    places = [(message["content"], index) for message in messages for index in range(len(message["content"]))]
    sizes = [len(compact(parts[index])) for parts, index in places]
    size, blobs = len(compact(value)), list[Blob]()
    for place in sorted(range(len(places)), key=lambda place: -sizes[place]):
        if size <= MAX_LINE:
            break
        parts, index = places[place]
        parts[index], found = _outsourced(parts[index])
        size += len(compact(parts[index])) - sizes[place]
        blobs += found
    return (compact(value), blobs) if size <= MAX_LINE else _together(original, value)


def _together(original: dict[str, Any], value: dict[str, Any]) -> tuple[bytes, list[Blob]]:
    """Where there are too many parts for a reference each: all parts of a message in one blob."""
    pairs = [(message, _blob(_parts(message.get("content")))) for message in _messages(original)]
    messages = [message | {"content": [_reference(blob)]} for message, blob in pairs]
    return compact(_with_messages(value, messages)), [blob for _, blob in pairs]


def restored(raw: bytes, load: Load) -> bytes:
    """The line with its blobs put back; the line itself where it names none.

    ``load`` returns the content of the blob of a digest; its errors pass. ``ValueError`` where that is no part.
    """
    if b'"blob"' not in raw:
        return raw
    value = lenient_object(raw)
    back = _message_back(value, load)
    if _is_reference(value.get("arguments")):
        back["arguments"] = lenient_object(load(value["arguments"]["sha256"]))
    if isinstance(value.get("summary"), list):
        back["summary"] = [_message_back(message, load) for message in value["summary"]]
    return raw if back == value else compact(back)


def _message_back(message: Any, load: Load) -> Any:
    """A message, or a tool_result, with the blobs in its content replaced by what they stand for."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return dict(message) if isinstance(message, dict) else message
    parts: list[Any] = []
    for part in message["content"]:
        if _is_reference(part):
            parts += _loaded(part, load)
        else:
            parts.append(_message_back(part, load))
    return message | {"content": parts}


def _loaded(reference: dict[str, Any], load: Load) -> list[Any]:
    """What a blob stands for: one part, or several."""
    part = lenient_object(b'{"part":' + load(reference["sha256"]) + b"}")["part"]
    return part if isinstance(part, list) else [part]


def _is_reference(value: Any) -> bool:
    sha256 = value.get("sha256") if isinstance(value, dict) else None
    is_digest = isinstance(sha256, str) and _SHA256.fullmatch(sha256) is not None
    return is_digest and value.get("type") == "blob" and value.get("path") == f"data/blob/{sha256}"


def _messages(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages whose content may be big: those of a cut's summary, else the value itself."""
    return value["summary"] if value.get("type") == "cut" else [value]


def _with_messages(value: dict[str, Any], messages: list[dict[str, Any]]) -> dict[str, Any]:
    return value | {"summary": messages} if value.get("type") == "cut" else messages[0]


def _outsourced(part: Any) -> tuple[Any, list[Blob]]:
    """A part whose bulk is in blobs; a tool_result stays one, so that it is still paired with its call."""
    if isinstance(part, dict) and part.get("type") == "tool_result":
        inner = [_outsourced(child) for child in _parts(part.get("content"))]
        return part | {"content": [child for child, _ in inner]}, [blob for _, blobs in inner for blob in blobs]
    blob = _blob(part)
    return _reference(blob), [blob]


def _parts(content: Any) -> list[Any]:
    return list(content) if isinstance(content, list) else [{"type": "text", "text": content}]


def _blob(value: Any) -> Blob:
    content = compact(value)
    return Blob(hashlib.sha256(content).hexdigest(), content)


def _reference(blob: Blob) -> dict[str, Any]:
    path = f"data/blob/{blob.sha256}"
    return {"type": "blob", "path": path, "sha256": blob.sha256, "bytes": len(blob.content)}
