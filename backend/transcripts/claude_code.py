"""``claude-code``: the session files of Claude Code's projects directory (spec 4.2, import).

User text starts a run; assistant text and thinking become messages, each tool_use a ``tool_call`` event, each
tool_result a tool message of its call's run, usage one event per model response. ``timestamp`` and ``uuid`` of the
source stay in the lines as keys of the same name. Summaries, snapshots and side chains are not of the conversation.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from backend.errors import InvalidValue
from backend.names import is_model_name, is_stable_path, is_uuid
from backend.store import Stream
from backend.strict_json import lenient_object
from backend.transcripts.records import Identity, Record, Unreadable, made, numbered_lines, session_name

_CONVERSATION = frozenset(("user", "assistant"))
_USAGE = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cached_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
}

Draft = tuple[Stream, dict[str, Any]]


def identify(file: BinaryIO, stem: str) -> Identity:
    """The session's id: the file's name if it is a UUID, as Claude Code names them, else the first sessionId in it."""
    if is_uuid(stem):
        return Identity(stem, stem)
    for _, raw in numbered_lines(file):
        found = _object(raw).get("sessionId") if raw else None
        if isinstance(found, str) and found:
            return Identity(session_name(found), found if is_uuid(found) else None)
    return Identity(session_name(stem))


def convert(file: BinaryIO, scope: str) -> Iterator[Record]:
    """The conversation's lines in order; lines of other kinds give nothing."""
    reader = _Reader(scope)
    number = 0
    for number, raw in numbered_lines(file):
        try:
            drafts = reader.drafts(number, raw)
        except (ValueError, InvalidValue) as error:
            yield Unreadable(number, str(error))
            continue
        yield from (made(number, stream, value, scope) for stream, value in drafts)
    yield from (made(number, stream, value, scope) for stream, value in reader.rest())


class _Call(NamedTuple):
    name: str
    run: str


class _Reader:
    """Where a conversation stands: its run, calls without a result, the usage of the response being read."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._run = ""
        self._cwd = ""
        self._model = ""
        self._calls: dict[str, _Call] = {}
        self._response: str | None = None
        self._usage: dict[str, Any] | None = None

    def drafts(self, number: int, raw: bytes | None) -> list[Draft]:
        """What one source line becomes (``ValueError``, ``InvalidValue``: it cannot be read)."""
        if raw is None:
            raise InvalidValue("the line has more than 64 MiB")
        record = lenient_object(raw)
        if record.get("type") not in _CONVERSATION or record.get("isSidechain") is True:
            return []
        message = record.get("message")
        if not isinstance(message, dict) or not isinstance(message.get("content"), str | list):
            raise InvalidValue("a message without content")
        before = self._session_facts(record, message)
        if record["type"] == "user":
            return [*self.rest(), *before, *self._user(number, record, message["content"])]
        return [*before, *self._assistant(number, record, message)]

    def rest(self) -> list[Draft]:
        """The usage of the response that ends here."""
        usage, self._usage, self._response = self._usage, None, None
        return [] if usage is None else [("events", usage)]

    def _session_facts(self, record: Mapping[str, Any], message: Mapping[str, Any]) -> list[Draft]:
        """cwd and model, where they changed."""
        drafts: list[Draft] = []
        cwd, model = record.get("cwd"), message.get("model")
        if isinstance(cwd, str) and cwd != self._cwd and is_stable_path(cwd):
            self._cwd = cwd
            drafts.append(("events", {"type": "cwd", "cwd": cwd}))
        if isinstance(model, str) and model != self._model and is_model_name(model):
            self._model = model
            meta = {"client": "claude-code", "model": model, "scope": self._scope}
            drafts.append(("events", {"type": "meta", "meta": meta}))
        return drafts

    def _user(self, number: int, record: Mapping[str, Any], content: str | list[Any]) -> list[Draft]:
        parts = _as_parts(content)
        results = [part for part in parts if part.get("type") == "tool_result"]
        said = [_part(part) for part in parts if part.get("type") != "tool_result"]
        drafts = [self._result(number, record, part) for part in results]
        if said:
            self._run = _run_id(record, number)
            text = content if isinstance(content, str) else said
            drafts.append(("messages", self._message("user", text, record)))
        return drafts

    def _result(self, number: int, record: Mapping[str, Any], part: Mapping[str, Any]) -> Draft:
        call_id = str(part.get("tool_use_id", ""))
        call = self._calls.pop(call_id, None) or _Call("unknown", self._current_run(record, number))
        content = part.get("content", "")
        result: dict[str, Any] = {
            "type": "tool_result",
            "tool_call_id": call_id,
            "content": [_part(child) for child in _as_parts(content)] if isinstance(content, list) else str(content),
        }
        if part.get("is_error") is True:
            result["is_error"] = True
        return "messages", self._message("tool", [result], record) | {"run": call.run, "name": call.name}

    def _assistant(self, number: int, record: Mapping[str, Any], message: Mapping[str, Any]) -> list[Draft]:
        self._current_run(record, number)
        response = message.get("id")
        ended = self.rest() if response is None or response != self._response else []
        self._response = response if isinstance(response, str) else None
        content = message["content"]
        parts = _as_parts(content)
        said = (
            content if isinstance(content, str) else [_part(part) for part in parts if part.get("type") != "tool_use"]
        )
        drafts: list[Draft] = [("messages", self._message("assistant", said, record))] if said else []
        drafts += [self._call(part, record) for part in parts if part.get("type") == "tool_use"]
        self._usage = self._usage_event(message.get("usage"), record) or self._usage
        return ended + drafts

    def _call(self, part: Mapping[str, Any], record: Mapping[str, Any]) -> Draft:
        call_id, name, arguments = part.get("id"), part.get("name"), part.get("input")
        if not isinstance(call_id, str) or not isinstance(name, str) or not isinstance(arguments, dict):
            raise InvalidValue("a tool_use without id, name or input")
        self._calls[call_id] = _Call(name, self._run)
        event = {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments, "run": self._run}
        return "events", event | _source_keys(record)

    def _usage_event(self, usage: Any, record: Mapping[str, Any]) -> dict[str, Any] | None:
        if not isinstance(usage, dict):
            return None
        counts = {ours: usage[theirs] for theirs, ours in _USAGE.items() if isinstance(usage.get(theirs), int)}
        if not {"input_tokens", "output_tokens"} <= counts.keys():
            return None
        return {"type": "usage", "run": self._run} | counts | _source_keys(record)

    def _message(self, role: str, content: Any, record: Mapping[str, Any]) -> dict[str, Any]:
        return {"role": role, "content": content, "run": self._run} | _source_keys(record)

    def _current_run(self, record: Mapping[str, Any], number: int) -> str:
        self._run = self._run or _run_id(record, number)
        return self._run


def _object(raw: bytes) -> dict[str, Any]:
    try:
        return lenient_object(raw)
    except ValueError:
        return {}


def _as_parts(content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, list):
        return [{"type": "text", "text": content}] if content else []
    if not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content):
        raise InvalidValue("a part of the content is not an object with a type")
    return content


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """A part of our own kinds: an image of theirs carries its bytes, one of ours a URL."""
    source = part.get("source")
    if part["type"] != "image" or not isinstance(source, dict):
        return part
    url = source.get("url") or f"data:{source.get('media_type', '')};base64,{source.get('data', '')}"
    return {"type": "image", "url": url}


def _run_id(record: Mapping[str, Any], number: int) -> str:
    """The same for the same line of the same session, whenever it is imported."""
    seed = f"{record.get('sessionId')} {record.get('uuid') or number}"
    return f"claude-{hashlib.sha256(seed.encode('utf-8', 'backslashreplace')).hexdigest()[:32]}"


def _source_keys(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("timestamp", "uuid") if isinstance(record.get(key), str)}
