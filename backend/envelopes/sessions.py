"""What a session file holds: envelope v1, or the array of messages that came before it (spec 5).

``decoded`` is the one load behind validate, inspect, list, resume and import: it judges every message and keeps the
document in little memory (``documents``). Texts that leave a session have lost their secrets (``redaction``).
"""

from __future__ import annotations

import json
from collections import deque
from contextlib import contextmanager
from types import SimpleNamespace

from backend.envelopes import documents
from backend.envelopes.errors import EnvelopeError
from backend.envelopes.redaction import redacted, redacted_message
from backend.envelopes.strict import MAX_U64
from backend.envelopes.texts import bounded, preview, typed_by_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType
    from typing import Any

SCHEMA_VERSION = 1
MAX_MODEL = 256
MAX_WORKSPACE = 4096

_MAX_SHOWN_VERSION = (1 << 32) - 1  # clients read 32 bits, and of a page with one summary that they cannot read, none
_MAX_PREVIEWED = 64 << 10  # characters of a prompt that are looked through for its first 160

_ENVELOPE = frozenset(
    (
        *("schema_version", "session_id", "workspace_scope", "created_at_ms", "updated_at_ms", "model", "generation"),
        *("messages", "compaction", "compaction_revision"),
    )
)
_MESSAGE = frozenset(("role", "content", "tool_call_id", "name", "tool_calls"))
_BLOCK = frozenset(("type", "text", "tool_use_id", "content", "is_error"))
_CALL = frozenset(("id", "type", "function"))
_FUNCTION = frozenset(("name", "arguments"))


class Session(SimpleNamespace):
    """A session as loaded or to be persisted; times in ms since 1970, ``messages`` as ``documents`` has them."""

    session_id: str
    workspace_scope: str
    created_at_ms: int
    updated_at_ms: int
    model: str
    generation: int
    messages: Any
    message_count: int
    first_prompt: str | None
    compaction: Any = None
    compaction_revision: int = 0

    def changed(self, **fields: Any) -> Session:
        """The session with other values of some fields."""
        return Session(**{**vars(self), **fields})

    def history(self) -> Iterator[dict[str, Any]]:
        """Its messages without secrets, one at a time (``corrupt``: more of a large one than was judged is no JSON)."""
        for message in documents.items(self.messages):
            with _corrupt(self.session_id):
                whole = documents.whole(message)
            yield redacted_message(whole)

    def summary(self) -> dict[str, Any]:
        """What clients see of a session that loads."""
        model = bounded(self.model, MAX_MODEL) if self.model else None
        return _summary(
            self.session_id,
            self.workspace_scope,
            (self.created_at_ms, self.updated_at_ms),
            SCHEMA_VERSION,
            "ready",
            {"model": model, "message_count": self.message_count, "first_prompt": self.first_prompt},
        )


def decoded(id: str, raw: bytes, workspace: str | None, modified_ms: int) -> Session:
    """The session in a file of that id; ``corrupt``, ``incompatible_version`` or ``scope_mismatch``.

    Without ``workspace`` it may be any one's, and of an array it is none's.
    """
    with _corrupt(id):
        value = documents.parse(raw)
        if documents.is_list(value):
            return _legacy(id, value, workspace or "", modified_ms)
        return _envelope(id, value, workspace)


def decoded_legacy(id: str, raw: bytes, workspace: str, modified_ms: int) -> Session:
    """As ``decoded`` for a file in a legacy directory, where only arrays are sessions."""
    with _corrupt(id):
        value = documents.parse(raw)
        if not documents.is_list(value):
            raise ValueError("legacy session is not a message array")
        return _legacy(id, value, workspace, modified_ms)


def stored_id(raw: bytes) -> str | None:
    """The id that an envelope says it has, whatever else is wrong with it."""
    try:
        value = documents.parse(raw)
        found = documents.fields(value, _ENVELOPE) if documents.is_object(value) else {}
    except ValueError:
        return None
    id = found.get("session_id")
    return id if isinstance(id, str) else None


def failed_summary(id: str, error: EnvelopeError, workspace: str, modified_ms: int) -> dict[str, Any]:
    """What clients see of a session that does not load, and why not."""
    times = (modified_ms, modified_ms)
    if error.code == "incompatible_version":
        version = min(int(error.parts["version"]), _MAX_SHOWN_VERSION)
        return _summary(id, workspace, times, version, "incompatible")
    if error.code == "scope_mismatch":
        return _summary(id, str(error.parts["actual"]), times, SCHEMA_VERSION, "scope_mismatch")
    return _summary(id, workspace, times, None, "corrupt")


def encoded(session: Session) -> bytes:
    """The file of a session: envelope v1 without secrets in its messages."""
    envelope: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "session_id": session.session_id,
        "workspace_scope": session.workspace_scope,
        "created_at_ms": session.created_at_ms,
        "updated_at_ms": session.updated_at_ms,
        "model": session.model,
        "generation": session.generation,
        "messages": list(session.history()),
    }
    if session.compaction is not None:
        with _corrupt(session.session_id):
            envelope["compaction"] = documents.whole(session.compaction)
    envelope["compaction_revision"] = session.compaction_revision
    try:
        return json.dumps(envelope, indent=2, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        detail = f"serialization failed: {_reason(error)}"
        raise EnvelopeError("corrupt", id=session.session_id, detail=detail) from None


def judged(messages: Any) -> tuple[int, str | None]:
    """How many messages there are, and the preview of the first prompt; ``ValueError`` for one that is none."""
    count, prompt = 0, None
    for run in documents.runs(messages):
        if type(run) is bytes and (known := _dense().messages(run)) is not None:
            count += len(known)
            if prompt is None:
                prompts = (_previewed(message.texts) for message in known if message.role == "user")
                prompt = next(filter(None, prompts), None)
            continue
        for message in documents.members(run):
            role, texts = _message(message)
            if role == "user" and prompt is None:
                prompt = _previewed(texts)
            deque(texts, maxlen=0)  # which judges them all
            count += 1
    return count, prompt


def _summary(
    id: str,
    workspace: str,
    times: tuple[int, int],
    version: int | None,
    health: str,
    found: dict[str, Any] | None = None,
) -> dict[str, Any]:
    contents = found or {"model": None, "message_count": 0, "first_prompt": None}
    return {
        "session_id": id,
        "workspace_scope": bounded(workspace, MAX_WORKSPACE),
        "created_at_ms": times[0],
        "updated_at_ms": times[1],
        **contents,
        "schema_version": version,
        "health": health,
    }


def _legacy(id: str, messages: Any, workspace: str, modified_ms: int) -> Session:
    count, prompt = judged(messages)
    return Session(
        session_id=id,
        workspace_scope=workspace,
        created_at_ms=modified_ms,
        updated_at_ms=modified_ms,
        model="",
        generation=0,
        messages=messages,
        message_count=count,
        first_prompt=prompt,
    )


def _envelope(id: str, value: Any, workspace: str | None) -> Session:
    found = documents.fields(value, _ENVELOPE) if documents.is_object(value) else {}
    version = found.get("schema_version")
    if type(version) is not int or not _is_u64(version):
        raise ValueError("missing schema_version")
    if version != SCHEMA_VERSION:
        raise EnvelopeError("incompatible_version", id=id, version=version)
    for name in ("session_id", "workspace_scope", "model"):
        _require(documents.is_text(found.get(name)), name, "a string")
    for name in ("created_at_ms", "updated_at_ms", "generation"):
        _require(_is_u64(found.get(name)), name, "an unsigned integer")
    _require(documents.is_list(found.get("messages")), "messages", "an array")
    revision, compaction = found.get("compaction_revision", 0), found.get("compaction")
    _require(_is_u64(revision), "compaction_revision", "an unsigned integer")
    _require(compaction is None or documents.is_object(compaction), "compaction", "an object")
    count, prompt = judged(found["messages"])
    if found["session_id"] != id:
        raise ValueError("filename and envelope session IDs differ")
    actual, model = documents.ends(found["workspace_scope"]), documents.ends(found["model"])
    if workspace is not None and actual != workspace:
        raise EnvelopeError("scope_mismatch", id=id, actual=actual, expected=workspace)
    known = {name: found[name] for name in ("session_id", "created_at_ms", "updated_at_ms", "generation", "messages")}
    return Session(
        **known,
        workspace_scope=actual,
        model=bounded(model, MAX_MODEL),
        message_count=count,
        first_prompt=prompt,
        compaction=compaction,
        compaction_revision=revision,
    )


def _message(value: Any) -> tuple[Any, Iterator[Any]]:
    """The role and texts of a message that is one, as far as its texts are."""
    _require(documents.is_object(value), "a message", "an object")
    found = documents.fields(value, _MESSAGE)
    _require(documents.is_text(found.get("role")), "role", "a string")
    for name in ("tool_call_id", "name"):
        _require(found.get(name) is None or documents.is_text(found[name]), name, "a string")
    if found.get("tool_calls") is not None:
        _calls(found["tool_calls"])
    return found["role"], _texts(found.get("content"))


def _texts(content: Any) -> Iterator[Any]:
    """What a message's content says, in order; ``ValueError`` where it is none."""
    if documents.is_text(content):
        yield content
        return
    _require(documents.is_list(content), "content", "a string or an array")
    for run in documents.runs(content):
        if type(run) is bytes and (known := _dense().blocks(run)) is not None:
            yield from (block.text for block in known)
        else:
            yield from map(_block, documents.members(run))


def _block(value: Any) -> Any:
    """What a content block says."""
    _require(documents.is_object(value), "a content block", "an object")
    found = documents.fields(value, _BLOCK)
    if found.get("type") == "text":
        _require(documents.is_text(found.get("text")), "text", "a string")
        return found["text"]
    _require(found.get("type") == "tool_result", "type of a content block", "text or tool_result")
    for name in ("tool_use_id", "content"):
        _require(documents.is_text(found.get(name)), name, "a string")
    _require(type(found.get("is_error", False)) is bool, "is_error", "a boolean")
    return found["content"]


def _calls(value: Any) -> None:
    _require(documents.is_list(value), "tool_calls", "an array")
    for run in documents.runs(value):
        if type(run) is not bytes or _dense().calls(run) is None:
            for call in documents.members(run):
                _call(call)


def _call(value: Any) -> None:
    _require(documents.is_object(value), "a tool call", "an object")
    found = documents.fields(value, _CALL)
    for name in ("id", "type"):
        _require(documents.is_text(found.get(name)), name, "a string")
    _require(documents.is_object(found.get("function")), "function", "an object")
    function = documents.fields(found["function"], _FUNCTION)
    for name in ("name", "arguments"):
        _require(documents.is_text(function.get(name)), name, "a string")


def _previewed(texts: Iterable[Any]) -> str | None:
    """The preview of a prompt, None where it is empty."""
    return preview(_shown(documents.ends(text)) for text in texts if text)


def _shown(text: str) -> str:
    return redacted(typed_by_user(text)[:_MAX_PREVIEWED])


def _dense() -> ModuleType:
    from backend.envelopes import dense

    return dense


@contextmanager
def _corrupt(id: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise EnvelopeError("corrupt", id=id, detail=_reason(error)) from None


def _require(holds: bool, what: str, kind: str) -> None:
    if not holds:
        raise ValueError(f"{what} must be {kind}")


def _is_u64(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_U64


def _reason(error: Exception) -> str:
    return f"invalid UTF-8: {error.reason}" if isinstance(error, UnicodeDecodeError) else str(error)
