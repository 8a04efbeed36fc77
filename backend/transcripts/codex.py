"""``codex``: rollout files of the Codex CLI, live or archived, in both forms (spec 4.2, import).

Newer files wrap everything as ``{"timestamp","type","payload"}``; older ones begin with a header (``id``,
``timestamp``) and have bare response items, without times. What the model was sent and said is in the response items;
of the events, which mostly repeat them for the screen, only usage and rollbacks count.
A line without a time of its own has that of the line before it.

Text of the user starts a run, what Codex itself puts before it does not. ``compacted`` is a cut. A rollback begins a
child where the conversation goes on: nothing of what was rolled back is lost. A file that was forked from another
session has that one's header and history after its own; the history stays, the header is passed over.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from backend.errors import InvalidValue
from backend.names import is_model_name, is_stable_path, is_uuid
from backend.rows import Stream
from backend.strict_json import lenient_object
from backend.transcripts.records import (
    Child,
    Converted,
    Identity,
    Position,
    Record,
    converted,
    digest,
    made,
    objects,
    parsed,
    session_name,
    time_of,
    usage_of,
)

_FILE_NAME = re.compile(r"rollout-.*-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_TEXTS = frozenset(("input_text", "output_text", "text", "summary_text", "reasoning_text"))
_CWD = re.compile(r"<cwd>(/[^<\n]*)</cwd>|Current working directory: (/[^\n]*)")
_INJECTED = ("<environment_context>", "<user_instructions>", "<permissions instructions>", "# AGENTS.md instructions")
_RESULTS = frozenset(("function_call_output", "custom_tool_call_output", "local_shell_call_output"))
_CALLS = frozenset(("function_call", "custom_tool_call", "local_shell_call", "web_search_call"))
_USAGE = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_input_tokens": "cached_tokens",
    "reasoning_output_tokens": "reasoning_tokens",
}


def identify(file: BinaryIO, stem: str) -> Identity:
    """The session's id as its header has it, else as the file's name has it."""
    for record in objects(file):
        header = _header(record)
        if header is not None:
            found = header["id"]
            return Identity(session_name(found), found if is_uuid(found) else None, _parent(header))
    named = _FILE_NAME.fullmatch(stem)
    return Identity(named[1], named[1]) if named else Identity(session_name(stem))


def convert(file: BinaryIO, scope: str) -> Iterator[Record]:
    """The lines of the file's session and its children, in its order; lines of other kinds give nothing."""
    return converted(file, _Reader(scope).read)


class _Call(NamedTuple):
    name: str | None
    run: str


class _Reader:
    """Where the conversation stands."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._number = 0
        self._stamp: dict[str, str] = {}
        self._time: int | None = None
        self._id = ""
        self._run = ""
        self._cwd = ""
        self._model = ""
        self._calls: dict[str, _Call] = {}
        self._total: Any = None
        self._chain = 0
        self._chains = 1
        self._length = Position()
        self._turns: list[tuple[int, Position]] = []

    def read(self, number: int, raw: bytes | None) -> Iterator[Record]:
        """What one source line becomes (``InvalidValue``: it cannot be read)."""
        self._number = number
        record = parsed(raw)
        self._stamp = {"timestamp": record["timestamp"]} if isinstance(record.get("timestamp"), str) else {}
        self._time = time_of(record.get("timestamp")) or self._time
        if (header := _header(record)) is not None:
            yield from self._begin(header)
            return
        payload = record.get("payload")
        if not isinstance(payload, dict):
            yield from self._item(record)
            return
        match record.get("type"):
            case "response_item":
                yield from self._item(payload)
            case "turn_context":
                yield from self._facts(payload.get("cwd"), payload.get("model"))
            case "event_msg":
                yield from self._event(payload)
            case "compacted":
                yield from self._compacted(payload)

    def _begin(self, header: Mapping[str, Any]) -> Iterator[Record]:
        """The first header; another one is that of the session this one was forked from."""
        if self._id:
            return
        self._id = header["id"]
        self._time = time_of(header.get("timestamp")) or self._time
        yield from self._facts(header.get("cwd"), None)

    def _item(self, item: Mapping[str, Any]) -> Iterator[Record]:
        kind = item.get("type")
        if kind == "message":
            yield from self._message(item)
        elif kind == "reasoning":
            yield from self._reasoning(item)
        elif kind in _CALLS:
            yield self._call(item)
        elif kind in _RESULTS:
            yield self._result(item)

    def _message(self, item: Mapping[str, Any]) -> Iterator[Record]:
        message = _message(item)
        first = str(next((part["text"] for part in message["content"] if part["type"] == "text"), ""))
        if item["role"] == "user":
            is_injected = first.lstrip().startswith(_INJECTED)
            if not is_injected:
                self._run = self._run_id()
                self._turns.append((self._chain, self._length))
            elif found := _CWD.search(first):
                yield from self._facts(found[1] or found[2], None)
        yield self._made("messages", message | {"run": self._current_run()} | self._stamp)

    def _reasoning(self, item: Mapping[str, Any]) -> Iterator[Record]:
        """What can be read of it; the rest is encrypted, for its provider alone."""
        parts = [_part(part) for key in ("summary", "content") for part in _list(item.get(key))]
        if parts:
            event = {"type": "reasoning_message", "role": "assistant", "content": parts, "run": self._current_run()}
            yield self._made("events", event | self._stamp)

    def _call(self, item: Mapping[str, Any]) -> Record:
        call_id = item.get("call_id") or item.get("id") or f"{item['type']}-{self._number}"
        name, arguments = _called(item)
        if not isinstance(call_id, str) or not isinstance(name, str):
            raise InvalidValue("a call without id or name")
        early = self._calls.get(call_id)
        run = early.run if early is not None and early.name is None else self._current_run()
        self._calls[call_id] = _Call(name, run)
        event = {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments, "run": run}
        return self._made("events", event | self._stamp)

    def _result(self, item: Mapping[str, Any]) -> Record:
        """A result before its call has no name, and the call will be of its run."""
        call_id = item.get("call_id")
        if not isinstance(call_id, str):
            raise InvalidValue("a result without call_id")
        call = self._calls.setdefault(call_id, _Call(None, self._current_run()))
        content, failed = _output(item.get("output"))
        result: dict[str, Any] = {"type": "tool_result", "tool_call_id": call_id, "content": content}
        if failed:
            result["is_error"] = True
        name = {} if call.name is None else {"name": call.name}
        return self._made("messages", {"role": "tool", "content": [result], "run": call.run, **name} | self._stamp)

    def _event(self, event: Mapping[str, Any]) -> Iterator[Record]:
        if event.get("type") == "token_count":
            yield from self._usage(event.get("info"))
        elif event.get("type") == "thread_rolled_back":
            yield from self._rolled_back(event.get("num_turns"))

    def _usage(self, info: Any) -> Iterator[Record]:
        """One event a response: the same count comes again whenever a limit is looked at."""
        if not isinstance(info, dict) or info.get("total_token_usage") == self._total:
            return
        self._total = info.get("total_token_usage")
        if (counts := usage_of(info.get("last_token_usage"), _USAGE)) is not None:
            yield self._made("events", {"type": "usage", "run": self._current_run()} | counts | self._stamp)

    def _rolled_back(self, turns: Any) -> Iterator[Record]:
        """What follows goes on where the last so many turns began."""
        if type(turns) is not int or turns < 1 or not self._turns:
            return
        at = self._turns[-turns:][0]
        del self._turns[-turns:]
        parent, self._chain, self._chains = at[0], self._chains, self._chains + 1
        self._length = at[1]
        self._run = self._cwd = self._model = ""
        yield Child(self._chain, parent, at[1], digest(self._id, self._number)[:8])

    def _compacted(self, payload: Mapping[str, Any]) -> Iterator[Record]:
        text, history = payload.get("message"), payload.get("replacement_history")
        if isinstance(history, list):
            summary = [message for item in history if isinstance(item, dict) for message in _replacement(item)]
        elif isinstance(text, str):
            summary = [{"role": "assistant", "content": text}]
        else:
            raise InvalidValue("a compaction without message or history")
        event = {"type": "cut", "before": self._length.entries, "summary": summary, "reason": "compacted"}
        yield self._made("events", event | ({"meta": self._stamp} if self._stamp else {}))

    def _facts(self, cwd: Any, model: Any) -> Iterator[Record]:
        """cwd and model, where they changed."""
        if isinstance(cwd, str) and cwd != self._cwd and is_stable_path(cwd):
            self._cwd = cwd
            yield self._made("events", {"type": "cwd", "cwd": cwd})
        if isinstance(model, str) and model != self._model and is_model_name(model):
            self._model = model
            meta = {"client": "codex", "model": model, "scope": self._scope}
            yield self._made("events", {"type": "meta", "meta": meta})

    def _made(self, stream: Stream, value: dict[str, Any]) -> Record:
        record = made(self._number, stream, value, self._scope, self._time)
        if not isinstance(record, Converted):
            return record
        self._length = self._length.after(stream)
        return record._replace(chain=self._chain)

    def _current_run(self) -> str:
        self._run = self._run or self._run_id()
        return self._run

    def _run_id(self) -> str:
        """The same for the same line of the same session, whenever it is imported."""
        return f"codex-{digest(self._id, self._number)}"


def _header(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """The header of a session, of either form, with its ``id`` and ``timestamp``."""
    if record.get("type") == "session_meta":
        header = record.get("payload")
    else:
        header = record if "timestamp" in record and "type" not in record else None
    return header if isinstance(header, dict) and isinstance(header.get("id"), str) and header["id"] else None


def _parent(header: Mapping[str, Any]) -> str | None:
    """The session that started this one, or that it was forked from."""
    found = _started_by(header.get("source")) or header.get("parent_thread_id") or header.get("forked_from_id")
    return found if isinstance(found, str) else None


def _started_by(source: Any) -> Any:
    """The ``parent_thread_id`` in the description of what started a session, however deep."""
    while isinstance(source, dict) and "parent_thread_id" not in source:
        source = next((inner for inner in source.values() if isinstance(inner, dict)), None)
    return source["parent_thread_id"] if isinstance(source, dict) else None


def _called(item: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Name and arguments of a call."""
    match item["type"]:
        case "function_call":
            return item.get("name"), _arguments(item.get("arguments"))
        case "custom_tool_call":
            return item.get("name"), {"input": item.get("input")}
        case "local_shell_call":
            return "local_shell", _object(item.get("action"))
    return "web_search", _object(item.get("action"))


def _arguments(text: Any) -> dict[str, Any]:
    """A function's arguments, which are JSON in a string; anything else is its one argument ``input``."""
    try:
        return lenient_object(text.encode()) if isinstance(text, str) else _object(text)
    except ValueError:
        return {"input": text}


def _output(output: Any) -> tuple[str | list[dict[str, Any]], bool]:
    """The content of a result, and whether it says that it failed."""
    if isinstance(output, dict):
        return _output(output.get("content"))[0], output.get("success") is False
    if isinstance(output, list):
        return [_part(part) for part in output], False
    return (output if isinstance(output, str) else ""), False


def _message(item: Mapping[str, Any]) -> dict[str, Any]:
    role = _ROLES.get(str(item.get("role")))
    if role is None:
        raise InvalidValue("a message of another role than user, assistant, system or developer")
    content = item.get("content")
    if isinstance(content, str):
        return {"role": role, "content": [{"type": "text", "text": content}]}
    return {"role": role, "content": [_part(part) for part in _list(content)]}


def _replacement(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """An item of the history that a compaction leaves, as a message of a cut's summary."""
    kind, call_id = item.get("type"), item.get("call_id")
    if kind == "message":
        yield _message(item)
    elif kind in _CALLS and isinstance(call_id, str):
        name, arguments = _called(item)
        call = {"id": call_id, "name": str(name), "arguments": arguments}
        yield {"role": "assistant", "content": [], "tool_calls": [call]}
    elif kind in _RESULTS and isinstance(call_id, str):
        content, _ = _output(item.get("output"))
        yield {"role": "tool", "content": [{"type": "tool_result", "tool_call_id": call_id, "content": content}]}


def _part(part: Any) -> dict[str, Any]:
    """A part of our own kinds; one of another kind stays as it is."""
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise InvalidValue("a part of the content is not an object with a type")
    if part["type"] in _TEXTS:
        return {"type": "text", "text": part.get("text")}
    if part["type"] == "input_image":
        return {"type": "image", "url": part.get("image_url")}
    return part


def _list(value: Any) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise InvalidValue("content is not an array")
    return value or []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
