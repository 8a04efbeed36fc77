"""What an agent prints, judged and turned into entries and frames (spec 3.6, 3.3). Pure; one run.

Entries go to the log as they happen, but for the assistant's last message: it belongs to the transaction that ends
the run, so a message is held back (with the usage that follows it) until something else comes, or the end.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from backend.digest import prompt_digest
from backend.errors import CtxError
from backend.rows import Line
from backend.strict_json import compact, strict_object
from ctxfs.agents import entries

MAX_LINE = 256 << 10
MAX_TEXT = (1 << 20) - (4 << 10)
"""So much streamed text, as JSON, fits one line; more of it becomes several messages."""


class BadOutput(Exception):
    """Something that no agent may print. ``code``: an errno's name; ``message`` is recorded, and quotes nothing."""

    def __init__(self, message: str, code: str = "EIO") -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class AgentError(BadOutput):
    """An agent's own ``error``: ``line`` is that event."""

    def __init__(self, line: Line, code: str, message: str) -> None:
        super().__init__(message, code)
        self.line = line


class Taken(NamedTuple):
    """What a line amounts to: entries for the log, and frames for who listens (without newlines)."""

    entries: Sequence[Line] = ()
    frames: Sequence[bytes] = ()


class Output:
    """The output of one run so far."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._held: list[Line] = []
        # Streamed texts, by the messages that they may become.
        self._texts: list[list[str]] = []
        self._text_size = 0
        self._calls: dict[str, str] = {}
        self._open_calls: set[str] = set()

    def take(self, raw: bytes) -> Taken:
        """The next line, without its newline (``BadOutput``; ``AgentError`` where the agent says so itself)."""
        try:
            value = strict_object(raw)
        except CtxError as error:
            raise _no_frame(error) from None
        return self.take_object(value)

    def take_object(self, value: Mapping[str, Any]) -> Taken:
        """As ``take``, of the object that a line is."""
        try:
            take = _FRAMES.get(value.get("type", ""))
            if take is None:
                raise BadOutput("the agent printed a frame of a type that is not an agent's")
            if value.get("run", self._run) != self._run:
                raise BadOutput("the agent printed a frame of another run")
            return take(self, value)
        except CtxError as error:
            raise _no_frame(error) from None
        except TypeError:
            raise BadOutput("the agent printed a frame without a type") from None

    def finish(self) -> Taken:
        """What was held back; text that became no message becomes one."""
        messages = self._messages_of_text()
        return Taken([*self._held, *messages], [entries.message_frame(message.raw) for message in messages])

    def abandon(self) -> Sequence[Line]:
        """As ``finish``, of a run that failed or was cancelled: its text so far is marked as partial."""
        return [*self._held, *self._messages_of_text(partial=True)]

    def _messages_of_text(self, **more: Any) -> list[Line]:
        return [entries.assistant_text(self._run, "".join(text), **more) for text in self._texts]

    def _drop_text(self) -> None:
        self._texts.clear()
        self._text_size = 0

    def _recorded(self, line: Line, frame: bytes) -> Taken:
        """An entry, behind what was held back and the text before it."""
        before = self.finish()
        self._drop_text()
        self._held = []
        return Taken([*before.entries, line], [*before.frames, frame])

    def _event(self, value: Mapping[str, Any]) -> Line:
        return entries.made("events", {**value, "run": self._run})

    def _delta(self, value: Mapping[str, Any]) -> Taken:
        line = self._event(value)
        if value["text"]:
            self._add_text(value["text"])
        return Taken(frames=[line.raw])

    def _add_text(self, text: str) -> None:
        size = len(compact(text))
        if not self._texts or self._text_size + size > MAX_TEXT:
            self._texts.append([])
            self._text_size = 0
        self._texts[-1].append(text)
        self._text_size += size

    def _reasoning_delta(self, value: Mapping[str, Any]) -> Taken:
        return Taken(frames=[self._event(value).raw])

    def _message(self, value: Mapping[str, Any]) -> Taken:
        if value.get("role") != "assistant":
            raise BadOutput("the agent printed a message whose role is not assistant")
        said = {key: item for key, item in value.items() if key != "type"}
        message = entries.made("messages", {**said, "run": self._run})
        before, self._held = self._held, [message]
        self._drop_text()
        return Taken(before, [entries.message_frame(message.raw)])

    def _tool_call(self, value: Mapping[str, Any]) -> Taken:
        line = self._event(value)
        if value["id"] in self._calls:
            raise BadOutput("the agent printed two tool calls of one id")
        self._calls[value["id"]] = value["name"]
        self._open_calls.add(value["id"])
        return self._recorded(line, line.raw)

    def _tool_result(self, value: Mapping[str, Any]) -> Taken:
        self._event(value)
        call = value["tool_call_id"]
        if call not in self._open_calls:
            raise BadOutput("the agent printed a tool result without a tool call, or a second one")
        self._open_calls.remove(call)
        part = {key: item for key, item in value.items() if key not in ("run", "name")}
        name = value.get("name", self._calls[call])
        message = entries.made("messages", {"content": [part], "name": name, "role": "tool", "run": self._run})
        return self._recorded(message, entries.message_frame(message.raw))

    def _usage(self, value: Mapping[str, Any]) -> Taken:
        line = self._event(value)
        if not self._held:
            return Taken([line], [line.raw])
        self._held.append(line)
        return Taken(frames=[line.raw])

    def _error(self, value: Mapping[str, Any]) -> Taken:
        raise AgentError(self._event(value), value["code"], value["message"])

    def _mark(self, value: Mapping[str, Any]) -> Taken:
        data = value.get("data")
        if value.get("name") == "prompt" and isinstance(data, dict) and isinstance(data.get("header"), dict):
            data = data | {"header": _with_digest(data["header"])}
        line = entries.made("events", {"type": "mark", "name": value.get("name"), "data": data})
        return self._recorded(line, line.raw)


_FRAMES = {
    "delta": Output._delta,
    "reasoning_delta": Output._reasoning_delta,
    "message": Output._message,
    "tool_call": Output._tool_call,
    "tool_result": Output._tool_result,
    "usage": Output._usage,
    "error": Output._error,
    "mark": Output._mark,
}


def _no_frame(error: CtxError) -> BadOutput:
    return BadOutput(f"the agent printed what is no frame: {error}")


def _with_digest(header: dict[str, Any]) -> dict[str, Any]:
    """The header of a prompt with its digest; a wrong one is refused."""
    digest = prompt_digest(header)
    if header.get("promptDigest", digest) != digest:
        raise BadOutput("the agent printed a prompt whose promptDigest is not that of its header")
    return header | {"promptDigest": digest}
