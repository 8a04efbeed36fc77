"""``claude-code``: the session files of Claude Code's projects directory (spec 4.2, import).

User text starts a run; assistant text becomes messages, thinking a ``reasoning_message`` event, each tool_use a
``tool_call`` event, each tool_result a tool message of its call's run, usage one event per model response.
``timestamp`` and ``uuid`` of the source stay in the lines as keys of the same name. A compaction is a cut, and so is a
``summary`` line after which the conversation goes on. What else is in such a file is not of the conversation.

``claude_tree`` says which of the file's sessions a line belongs to.
"""

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from backend.errors import InvalidValue
from backend.names import is_model_name, is_stable_path, is_uuid
from backend.rows import Stream
from backend.transcripts.claude_tree import Chain, Line, Tree
from backend.transcripts.records import (
    Converted,
    Identity,
    Record,
    converted,
    digest,
    made,
    objects,
    parsed,
    parts_of,
    session_name,
    time_of,
    usage_of,
)

_CONVERSATION = frozenset(("user", "assistant"))
_THINKING = frozenset(("thinking", "redacted_thinking"))
_USAGE = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cached_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
}


def identify(file: BinaryIO, stem: str) -> Identity:
    """The session's id: the file's name if it is a UUID, as Claude Code names them, else the first sessionId in it.

    A file of a side chain alone is called after itself; its sessionId is that of the session that started it.
    """
    if is_uuid(stem):
        return Identity(stem, stem)
    for record in objects(file):
        found = record.get("sessionId")
        if not isinstance(found, str) or not found:
            continue
        if record.get("isSidechain") is True or (stem.startswith("agent-") and found != stem):
            return Identity(session_name(stem), parent=found)
        return Identity(session_name(found), found if is_uuid(found) else None)
    return Identity(session_name(stem))


def convert(file: BinaryIO, scope: str) -> Iterator[Record]:
    """The lines of all sessions in the file, in its order; lines of other kinds give nothing."""
    reader = _Reader(scope)
    yield from converted(file, reader.read)
    yield from reader.end()


class _Call(NamedTuple):
    name: str | None
    run: str
    chain: Chain


class _Reader:
    """The file's sessions so far, and the calls made in them."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._tree = Tree()
        self._calls: dict[str, _Call] = {}
        self._titles: list[dict[str, Any]] = []
        self._reason = "compact"
        self._number = 0

    def read(self, number: int, raw: bytes | None) -> Iterator[Record]:
        """What one source line becomes (``InvalidValue``: it cannot be read)."""
        self._number = number
        record = parsed(raw)
        kind = record.get("type")
        if kind in _CONVERSATION:
            yield from self._conversation(record, hash(raw))
        elif kind == "summary":
            self._title(record)
        elif kind == "system" and record.get("subtype") == "compact_boundary":
            self._boundary(record)
        else:
            self._tree.see_through(record, record.get("parentUuid"))

    def end(self) -> Iterator[Record]:
        """The usage of the responses that end with the file."""
        for chain in self._tree.chains:
            yield from self._rest(chain)

    def _conversation(self, record: dict[str, Any], content: int) -> Iterator[Record]:
        message = record.get("message")
        if not isinstance(message, dict) or not isinstance(message.get("content"), str | list):
            raise InvalidValue("a message without content")
        parts = parts_of(message["content"])
        line = Line(record, parts)
        if self._tree.repeats(line, content):
            return
        yield from self._ended(line)
        called = self._calls.get(str(line.calls[0])) if line.calls else None
        chain, child = self._tree.chain_of(line, called.chain if called else None)
        if child is not None:
            yield child
        yield from self._pending_titles(chain)
        if record.get("isCompactSummary") is True:
            yield from self._cut(chain, record, [{"role": "user", "content": message["content"]}], self._reason)
        else:
            yield from self._drafts(chain, record, message, parts)
        self._tree.passed(line, chain, content)

    def _ended(self, line: Line) -> Iterator[Record]:
        """The usage of the response that this line shows to be over: it is a prompt, or of another response."""
        spot = self._tree.spot(line.parent) or self._tree.tip()
        if spot is not None and not line.is_result and (line.response is None or line.response != spot.chain.response):
            yield from self._rest(spot.chain)

    def _drafts(
        self, chain: Chain, record: Mapping[str, Any], message: Mapping[str, Any], parts: list[dict[str, Any]]
    ) -> Iterator[Record]:
        yield from self._facts(chain, record, message)
        if record["type"] == "user":
            yield from self._user(chain, record, message["content"], parts)
        else:
            yield from self._assistant(chain, record, message, parts)

    def _facts(self, chain: Chain, record: Mapping[str, Any], message: Mapping[str, Any]) -> Iterator[Record]:
        """cwd and model, where they changed."""
        cwd, model = record.get("cwd"), message.get("model")
        if isinstance(cwd, str) and cwd != chain.cwd and is_stable_path(cwd):
            chain.cwd = cwd
            yield self._made(chain, record, "events", {"type": "cwd", "cwd": cwd})
        if isinstance(model, str) and model != chain.model and is_model_name(model):
            chain.model = model
            meta = {"client": "claude-code", "model": model, "scope": self._scope}
            yield self._made(chain, record, "events", {"type": "meta", "meta": meta})

    def _user(
        self, chain: Chain, record: Mapping[str, Any], content: str | list[Any], parts: list[dict[str, Any]]
    ) -> Iterator[Record]:
        for part in parts:
            if part["type"] == "tool_result":
                yield self._result(chain, record, part)
        said = [_part(part) for part in parts if part["type"] != "tool_result"]
        if said:
            if record.get("isMeta") is not True or not chain.run:
                chain.run = self._run_id(record)
                chain.turn += 1
            yield self._message(chain, record, "user", content if isinstance(content, str) else said)

    def _result(self, chain: Chain, record: Mapping[str, Any], part: Mapping[str, Any]) -> Record:
        """A result before its call has no name, and the call will be of its run."""
        call_id = str(part.get("tool_use_id", ""))
        call = self._calls.setdefault(call_id, _Call(None, self._run(chain, record), chain))
        content = part.get("content", "")
        result: dict[str, Any] = {
            "type": "tool_result",
            "tool_call_id": call_id,
            "content": [_part(child) for child in parts_of(content)] if isinstance(content, list) else str(content),
        }
        if part.get("is_error") is True:
            result["is_error"] = True
        name = {} if call.name is None else {"name": call.name}
        return self._message(chain, record, "tool", [result], run=call.run, **name)

    def _assistant(
        self, chain: Chain, record: Mapping[str, Any], message: Mapping[str, Any], parts: list[dict[str, Any]]
    ) -> Iterator[Record]:
        chain.response = message["id"] if isinstance(message.get("id"), str) else None
        self._run(chain, record)
        for part in parts:
            if part["type"] in _THINKING:
                yield self._thought(chain, record, part)
        said = [_part(part) for part in parts if part["type"] not in _THINKING and part["type"] != "tool_use"]
        if said:
            content = message["content"]
            yield self._message(chain, record, "assistant", content if isinstance(content, str) else said)
        for part in parts:
            if part["type"] == "tool_use":
                yield self._call(chain, record, part)
        usage = usage_of(message.get("usage"), _USAGE)
        if usage and record.get("isApiErrorMessage") is not True:
            event = {"type": "usage", "run": chain.run} | usage | _source_keys(record)
            chain.usage = event, time_of(record.get("timestamp"))

    def _thought(self, chain: Chain, record: Mapping[str, Any], part: Mapping[str, Any]) -> Record:
        text = part.get("thinking")
        said = {"type": "text", "text": text} if isinstance(text, str) else dict(part)
        event = {"type": "reasoning_message", "role": "assistant", "content": [said], "run": chain.run}
        signature = {"signature": part["signature"]} if isinstance(part.get("signature"), str) else {}
        return self._made(chain, record, "events", event | signature | _source_keys(record))

    def _call(self, chain: Chain, record: Mapping[str, Any], part: Mapping[str, Any]) -> Record:
        call_id, name, arguments = part.get("id"), part.get("name"), part.get("input")
        if not isinstance(call_id, str) or not isinstance(name, str) or not isinstance(arguments, dict):
            raise InvalidValue("a tool_use without id, name or input")
        early = self._calls.get(call_id)
        run = early.run if early is not None and early.name is None else chain.run
        self._calls[call_id] = _Call(name, run, chain)
        event = {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments, "run": run}
        return self._made(chain, record, "events", event | _source_keys(record))

    def _message(
        self, chain: Chain, record: Mapping[str, Any], role: str, content: Any, run: str | None = None, **more: str
    ) -> Record:
        message = {"role": role, "content": content, "run": run or self._run(chain, record)} | more
        return self._made(chain, record, "messages", message | _source_keys(record))

    def _boundary(self, record: Mapping[str, Any]) -> None:
        """Marks where a compaction is; its summary is the next line."""
        compaction = record.get("compactMetadata")
        trigger = compaction.get("trigger") if isinstance(compaction, dict) else None
        self._reason = trigger if isinstance(trigger, str) else "compact"
        self._tree.see_through(record, record.get("logicalParentUuid") or record.get("parentUuid"))

    def _title(self, record: dict[str, Any]) -> None:
        """A summary line: of what was before this file, if it leads it; else of the conversation up to ``leafUuid``.

        It counts only where the conversation stands at that line, and goes on from there: others are titles, of other
        sessions or of this one, and a model that is sent a title alone knows nothing of what it is to go on with.
        """
        if not isinstance(record.get("summary"), str):
            return
        spot = self._tree.spot(record.get("leafUuid"))
        if not self._tree.chains:
            self._titles.append(record)
        elif spot is not None and spot.step == spot.chain.step:
            spot.chain.titles.append(record)

    def _pending_titles(self, chain: Chain) -> Iterator[Record]:
        titles, self._titles, chain.titles = self._titles + chain.titles, [], []
        for record in titles:
            yield from self._cut(chain, record, [_summary(record)], "summary")

    def _cut(self, chain: Chain, record: Mapping[str, Any], summary: list[Any], reason: str) -> Iterator[Record]:
        event = {"type": "cut", "before": chain.length.entries, "summary": summary, "reason": reason}
        meta = _source_keys(record)
        yield self._made(chain, record, "events", event | ({"meta": meta} if meta else {}))

    def _rest(self, chain: Chain) -> Iterator[Record]:
        """The usage of a chain's response; it belongs to the line before."""
        pending, chain.usage, chain.response = chain.usage, None, None
        if pending is not None:
            yield self._placed(chain, "events", *pending)
            if chain.last is not None:
                chain.last.at = chain.length

    def _made(self, chain: Chain, record: Mapping[str, Any], stream: Stream, value: dict[str, Any]) -> Record:
        return self._placed(chain, stream, value, time_of(record.get("timestamp")))

    def _placed(self, chain: Chain, stream: Stream, value: dict[str, Any], time: int | None) -> Record:
        record = made(self._number, stream, value, self._scope, time, chain.number)
        if isinstance(record, Converted):
            chain.length = chain.length.after(stream)
        return record

    def _run(self, chain: Chain, record: Mapping[str, Any]) -> str:
        chain.run = chain.run or self._run_id(record)
        return chain.run

    def _run_id(self, record: Mapping[str, Any]) -> str:
        """The same for the same line of the same session, whenever it is imported."""
        return f"claude-{digest(record.get('sessionId'), record.get('uuid') or self._number)}"


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """A part of our own kinds: an image of theirs carries its bytes, one of ours a URL."""
    source = part.get("source")
    if part["type"] != "image" or not isinstance(source, dict):
        return part
    url = source.get("url") or f"data:{source.get('media_type', '')};base64,{source.get('data', '')}"
    return {"type": "image", "url": url}


def _summary(record: Mapping[str, Any]) -> dict[str, str]:
    return {"role": "user", "content": record["summary"]}


def _source_keys(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("timestamp", "uuid") if isinstance(record.get(key), str)}
