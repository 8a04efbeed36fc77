"""One turn of a headless cosh-core: its JSONL as an agent's frames, and what its session becomes (spec 5.2, 3.6). Pure.

Nobody is there to ask, so whatever core asks is refused; ``--approval-mode`` of its command line says what it may do
unasked. Lines of kinds that are not known are passed over, as core's protocol grows.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from backend.strict_json import compact, lenient_object
from ctxfs.cosh.resume import Attempt, ResumeState, SessionFailure

_CODES = {"not_found": "ENOENT", "conflict": "EAGAIN"}
_REFUSED = {"behavior": "deny", "message": "nobody is there to ask"}

Frame = dict[str, Any]


class Taken(NamedTuple):
    """What a line of core amounts to: frames of an agent, and lines that core is answered with."""

    frames: tuple[Frame, ...] = ()
    replies: tuple[bytes, ...] = ()


class Turn:
    """One turn: from ``opening`` to its result. ``is_over``: core has said how it ended."""

    def __init__(self, state: ResumeState) -> None:
        self.is_over = False
        self._id: str | None = None
        self._state = state
        self._attempt: Attempt = state.start()

    @property
    def options(self) -> tuple[str, ...]:
        """What core's command line needs to go on with the session."""
        carried = self._attempt.session_id
        return () if carried is None else ("--resume", carried)

    @property
    def active_id(self) -> str | None:
        """The session that the next turn goes on with."""
        return self._state.snapshot().active_id

    def opening(self, text: str) -> bytes:
        """What core is told first."""
        initialize = {"type": "control_request", "request_id": "initialize", "request": {"subtype": "initialize"}}
        user = {"type": "user", "message": {"role": "user", "content": text}}
        return compact(initialize) + b"\n" + compact(user) + b"\n"

    def take(self, raw: bytes) -> Taken:
        """The next line of core (``ValueError``: it is no JSON object)."""
        line = lenient_object(raw)
        if self.is_over:
            return Taken()
        match line:
            case {"type": "system", "subtype": "init", "session_id": str(id)}:
                return self._initialized(id, line.get("session_resumable"))
            case {"type": "stream_event", "event": {"type": "content_block_delta", "delta": dict(delta)}}:
                return Taken(tuple(_delta(delta)))
            case {"type": "assistant", "message": {"content": list(blocks)}}:
                return Taken(tuple(_said(blocks)))
            case {"type": "user", "message": {"content": list(blocks)}}:
                return Taken(tuple(_results(blocks)))
            case {"type": "control_request", "request_id": str(id)}:
                response = {"subtype": "success", "request_id": id, "response": _REFUSED}
                return Taken(replies=(compact({"type": "control_response", "response": response}) + b"\n",))
            case {"type": "result"}:
                return self._result(line)
        return Taken()

    def cancelled(self) -> None:
        """The turn was cancelled, or core is gone without a result."""
        self._state.cancelled(self._attempt)

    def _initialized(self, id: str, resumable: Any) -> Taken:
        is_resumable = resumable if isinstance(resumable, bool) else None
        if self._state.initialized(self._attempt, id, is_resumable=is_resumable):
            self._id = id
            return Taken()
        return self._ended(self._mismatch(id))

    def _result(self, line: Mapping[str, Any]) -> Taken:
        if line.get("is_error") is not True:
            id = line.get("session_id") or self._id  # a result need not repeat it
            accepted = not isinstance(id, str) or self._state.succeeded(self._attempt, id)
            carried = self._attempt.session_id
            return self._ended(*([] if accepted or carried in (None, id) else [self._mismatch(str(id))]))
        message = _error_text(line)
        code, phase = line.get("session_error_code"), line.get("session_error_phase")
        if isinstance(code, str) and isinstance(phase, str):
            failure = SessionFailure(code, phase, message)
            self._state.failed(self._attempt, failure)
            hint = f" {failure.hint}" if failure.hint else ""
            return self._ended(_error(_CODES.get(code, "EIO"), f"{message}{hint}"))
        self._state.failed(self._attempt)
        return self._ended(_error("EIO", message))

    def _ended(self, *frames: Frame) -> Taken:
        self.is_over = True
        return Taken(frames)

    def _mismatch(self, id: str) -> Frame:
        return _error("ESTALE", f"cosh-core answered for session {id}, not {self._attempt.session_id}")


def _delta(delta: Mapping[str, Any]) -> Iterator[Frame]:
    match delta:
        case {"type": "text_delta", "text": str(text)}:
            yield {"type": "delta", "text": text}
        case {"type": "thinking_delta", "thinking": str(text)}:
            yield {"type": "reasoning_delta", "text": text}


def _said(blocks: list[Any]) -> Iterator[Frame]:
    """A message of its texts, then its calls."""
    texts = [{"type": "text", "text": text} for text in map(_text, blocks) if text]
    if texts:
        yield {"type": "message", "role": "assistant", "content": texts}
    for block in blocks:
        match block:
            case {"type": "tool_use", "id": str(id), "name": str(name)}:
                arguments = block.get("input")
                known = arguments if isinstance(arguments, dict) else {"input": arguments}
                yield {"type": "tool_call", "id": id, "name": name, "arguments": known}


def _results(blocks: list[Any]) -> Iterator[Frame]:
    for block in blocks:
        match block:
            case {"type": "tool_result", "tool_use_id": str(id), "content": str(content)}:
                failed = {"is_error": True} if block.get("is_error") is True else {}
                yield {"type": "tool_result", "tool_call_id": id, "content": content, **failed}


def _text(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
    return ""


def _error_text(line: Mapping[str, Any]) -> str:
    errors = line.get("errors")
    words = [error for error in errors if isinstance(error, str)] if isinstance(errors, list) else []
    found = "; ".join(words) or line.get("result")
    return found if isinstance(found, str) and found else "cosh-core failed and did not say why"


def _error(code: str, message: str) -> Frame:
    return {"type": "error", "code": code, "message": message}
