"""``--to cosh``: a session file of cosh-core, envelope v1 (spec 4.2, 5).

DIR may be a scope directory of cosh-core: the file is written as cosh-core would, under the session's lock and as the
next generation of one that is there.
"""

import os
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from backend.entries import Entry, MarkEntry, MessageEntry
from backend.envelopes import directories
from backend.envelopes.directories import Directory
from backend.envelopes.errors import EnvelopeError
from backend.envelopes.sessions import Session, decoded, encoded, judged
from backend.envelopes.strict import MAX_U64
from backend.names import is_uuid
from backend.strict_json import compact
from mountctl.cli import Failure
from mountctl.entries import LogFile
from mountctl.exporting import Session as Exported
from mountctl.sessions import read_value

_NAMESPACE = uuid.UUID("9b6a3b5e-6a52-4d0e-9f0e-5d7b8c1f2a10")


def export(session: Exported, directory: str) -> str:
    """Writes ``<directory>/<uuid>.json``; that path."""
    with LogFile(session.directory, session.blob) as log:
        made = _session(session, log)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    try:
        with directories.made(os.path.realpath(directory), "exported") as target, target.locked(made.session_id):
            _write(target, made)
            target.remove_lock(made.session_id)
    except EnvelopeError as error:
        raise Failure(f"{error}: {error.hint}") from error
    return f"{directory}/{made.session_id}.json"


def _write(target: Directory, made: Session) -> None:
    generation = 0
    if (file := target.open(made.session_id)) is not None:
        with file, suppress(EnvelopeError):  # what is no session is replaced by one
            generation = decoded(file.id, file.read(), None, file.modified_ms).generation
    if generation >= MAX_U64:
        raise EnvelopeError("corrupt", id=made.session_id, detail="session generation is exhausted")
    raw = encoded(made.changed(generation=generation + 1))
    if len(raw) > directories.MAX_SESSION_FILE:
        raise Failure(f"the session is too large for cosh-core: {len(raw)} of {directories.MAX_SESSION_FILE} bytes")
    target.replace(made.session_id, raw)


def _session(exported: Exported, log: Iterable[Entry]) -> Session:
    messages, model, first, last = list[dict[str, Any]](), "", None, None
    for entry in log:
        first, last = entry.time if first is None else first, entry.time
        match entry:
            case MessageEntry(message=message):
                messages += _message(message)
            case MarkEntry(name="tool_call", data=dict(call)):
                _add_call(messages, call)
            case MarkEntry(name="meta", data={"meta": {"model": str(found)}}):
                model = found
    now = time.time_ns() // 1_000_000
    count, prompt = judged(messages)
    return Session(
        session_id=_id(exported),
        workspace_scope=read_value(f"{exported.directory}/cwd"),
        created_at_ms=now if first is None else first,
        updated_at_ms=now if last is None else last,
        model=model,
        generation=0,
        messages=messages,
        message_count=count,
        first_prompt=prompt,
    )


def _id(exported: Exported) -> str:
    """The UUID that leads to the session, else one that is always the same for it."""
    index = f"{os.path.dirname(exported.directory)}/index/by-uuid"
    for found in sorted(filter(is_uuid, os.listdir(index))):
        with suppress(FileNotFoundError):
            if read_value(f"{index}/{found}") == exported.name:
                return found
    own = os.getxattr(exported.directory, "user.ctx.uuid").decode()
    return own if is_uuid(own) else str(uuid.uuid5(_NAMESPACE, own))


def _message(message: dict[str, Any]) -> list[dict[str, Any]]:
    role, content = message["role"], message["content"]
    if role != "tool":
        return [{"role": role, "content": content if isinstance(content, str) else list(map(_block, content))}]
    results = [part for part in content if isinstance(part, dict) and part.get("type") == "tool_result"]
    named = {"name": message["name"]} if "name" in message else {}
    return [
        {"role": "tool", "content": _text(part.get("content")), "tool_call_id": part["tool_call_id"], **named}
        for part in results
    ]


def _block(part: dict[str, Any]) -> dict[str, Any]:
    """Text stays text; cosh-core knows no other part that an assistant or user could have, so it is shown as JSON."""
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    if part["type"] == "tool_result":
        return {"type": "tool_result", "tool_use_id": part["tool_call_id"], "content": _text(part.get("content"))}
    return {"type": "text", "text": compact(part).decode()}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part["text"]) if part.get("type") == "text" else compact(part).decode() for part in parts)


def _add_call(messages: list[dict[str, Any]], event: dict[str, Any]) -> None:
    """A call is the assistant's last message's, or makes an empty one."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    function = {"name": event["name"], "arguments": compact(event.get("arguments", {})).decode()}
    messages[-1].setdefault("tool_calls", []).append({"id": event["id"], "type": "function", "function": function})
