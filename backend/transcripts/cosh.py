"""``cosh``: session files of cosh-core, envelope v1 and the arrays of messages before it (spec 4.2, import; 5).

The load is the one that validates sessions for cosh-shell (``backend.envelopes``), for whichever workspace; so a file
is read whole or not at all, and has no secrets. Messages have no times: the first ones have the session's beginning,
the last one has its end. ``number`` counts messages.
"""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from backend.envelopes.directories import MAX_SESSION_FILE, TOO_LARGE
from backend.envelopes.errors import EnvelopeError
from backend.envelopes.sessions import Session, decoded, stored_id
from backend.errors import InvalidValue
from backend.names import is_model_name, is_stable_path, is_uuid
from backend.rows import Stream
from backend.transcripts.records import Identity, Record, Unreadable, digest, made, parts_of, session_name

_ROLES = frozenset(("user", "assistant", "system"))


def identify(file: BinaryIO, stem: str) -> Identity:
    """The session's id, as the envelope or else the file's name has it."""
    found = stem if is_uuid(stem) else stored_id(file.read(MAX_SESSION_FILE + 1)) or stem
    return Identity(session_name(found), found if is_uuid(found) else None)


def convert(file: BinaryIO, scope: str) -> Iterator[Record]:
    """The lines of the session, in its order."""
    raw = file.read(MAX_SESSION_FILE + 1)
    if len(raw) > MAX_SESSION_FILE:
        yield Unreadable(1, TOO_LARGE)
        return
    try:
        session = decoded(stored_id(raw) or "", raw, None, 0)
        yield from _Reader(session, scope).records()
    except EnvelopeError as error:
        yield Unreadable(1, str(error.parts.get("detail", error)))


class _Reader:
    """Where the conversation stands."""

    def __init__(self, session: Session, scope: str) -> None:
        self._session = session
        self._scope = scope
        self._number = 0
        self._run = ""
        self._calls: dict[str, tuple[str, str]] = {}

    def records(self) -> Iterator[Record]:
        yield from self._facts()
        for number, message in enumerate(self._session.history(), 1):
            self._number = number
            try:
                yield from self._message(message)
            except InvalidValue as error:
                yield Unreadable(self._number, str(error))

    def _facts(self) -> Iterator[Record]:
        self._number = 1
        cwd, model = self._session.workspace_scope, self._session.model
        if is_stable_path(cwd):
            yield self._made("events", {"type": "cwd", "cwd": cwd})
        if is_model_name(model):
            yield self._made(
                "events", {"type": "meta", "meta": {"client": "cosh", "model": model, "scope": self._scope}}
            )

    def _message(self, message: dict[str, Any]) -> Iterator[Record]:
        role = message["role"]
        if role == "tool":
            yield self._result(message.get("tool_call_id"), message["content"], name=message.get("name"))
            return
        if role not in _ROLES:
            raise InvalidValue("a message of another role than user, assistant, system or tool")
        texts, results = _parted(parts_of(message["content"]))
        if role == "user" and texts:
            self._run = self._run_id()
        for result in results:
            yield self._result(result["tool_use_id"], result["content"], failed=result.get("is_error", False))
        if texts:
            yield self._made("messages", {"role": role, "content": texts, "run": self._current_run()})
        for call in message.get("tool_calls") or ():
            yield self._call(call)

    def _call(self, call: dict[str, Any]) -> Record:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        self._calls[call["id"]] = name, self._current_run()
        event = {"type": "tool_call", "id": call["id"], "name": name, "arguments": _arguments(arguments)}
        return self._made("events", event | {"run": self._current_run()})

    def _result(self, call_id: Any, content: Any, *, name: str | None = None, failed: bool = False) -> Record:
        if not isinstance(call_id, str):
            raise InvalidValue("a result without tool_call_id")
        called, run = self._calls.get(call_id, (None, self._current_run()))
        result: dict[str, Any] = {"type": "tool_result", "tool_call_id": call_id, "content": content}
        if failed:
            result["is_error"] = True
        known = {} if (name or called) is None else {"name": name or called}
        return self._made("messages", {"role": "tool", "content": [result], "run": run, **known})

    def _made(self, stream: Stream, value: dict[str, Any]) -> Record:
        is_last = self._number == self._session.message_count
        time = self._session.updated_at_ms if is_last else self._session.created_at_ms
        return made(self._number, stream, value, self._scope, time or None)

    def _current_run(self) -> str:
        self._run = self._run or self._run_id()
        return self._run

    def _run_id(self) -> str:
        """The same for the same message of the same session, whenever it is imported."""
        return f"cosh-{digest(self._session.session_id, self._number)}"


def _parted(parts: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    texts = [{"type": "text", "text": part["text"]} for part in parts if part["type"] == "text"]
    return texts, [part for part in parts if part["type"] == "tool_result"]


def _arguments(text: str) -> dict[str, Any]:
    """A call's arguments, which are JSON in a string; anything else is its one argument ``input``."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"input": text}
