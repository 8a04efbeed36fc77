"""A session as a conversation (spec 4.1): turns of people and agents, calls beside their results, and what went wrong.

What ``history`` shows on a terminal and as a page is made of these turns. Entries in, turns out: nothing is printed or
escaped here. The log is read in order, once for the turns and once ahead of them, as far as the next result is away; of
it only where each result stands is kept.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from backend.entries import CutEntry, Entry, MarkEntry, MessageEntry
from mountctl.entries import LogFile

Key = tuple[str | None, str]
"""A run and a call id."""


_TELLING = (b'"tool_', b'"usage"', b'"user"')
_QUESTION_LENGTH = 100
_LAST_YEAR = 9998  # of those that every time zone has

MAX_MARKDOWN = 30_000
"""Characters of a text that is laid out; a longer one stands as it is: made on purpose it would take minutes."""


class Text(NamedTuple):
    """Markdown that somebody wrote."""

    text: str


class Thought(NamedTuple):
    """Reasoning of a model."""

    text: str


class Media(NamedTuple):
    """A part that is no text: its type, and its path or URL (empty where it has none)."""

    kind: str
    where: str


class Result(NamedTuple):
    """What a call gave."""

    parts: Sequence["Part"]
    failed: bool


class Call(NamedTuple):
    """A tool call, and its result if there is one."""

    name: str
    arguments: Any
    result: Result | None


Part = Text | Thought | Media | Call | Result


class Turn(NamedTuple):
    """Entry ``n``: somebody said something, or called a tool (``role`` tool). ``moment`` None: no calendar has it."""

    n: int
    moment: datetime | None
    role: str
    parts: Sequence[Part]


class Notice(NamedTuple):
    """Entry ``n``: something about the session. ``turns`` is what a cut put in place of what was said before."""

    n: int
    moment: datetime | None
    kind: str
    text: str
    turns: Sequence[Turn] = ()


class Tokens(NamedTuple):
    """Tokens of all usage that was recorded."""

    read: int = 0
    written: int = 0


class Index:
    """Where in a log results and calls are, as far as it was looked through; with what is counted on the way.

    ``questions``: each user message's number and how it begins.
    """

    def __init__(self, log: LogFile) -> None:
        self._log = log
        self._ahead = log.lines()
        self._results: dict[Key, list[tuple[int, int]]] = defaultdict(list)
        self._events = Counter[Key]()
        self._named = Counter[Key]()
        self.tokens = Tokens()
        self.entries = 0
        self.questions: list[tuple[int, str]] = []

    def look_on(self) -> bool:
        """Looks at one more entry; False at the end."""
        position, line = next(self._ahead, (0, b""))
        if line:
            self.entries += 1
            if any(word in line for word in _TELLING):
                self._look_at(position, self._log.at(position))
        return bool(line)

    def _look_at(self, position: int, entry: Entry) -> None:
        match entry:
            case MarkEntry(name="tool_call", data=dict(data)):
                self._events[_key(data, data.get("id"))] += 1
            case MarkEntry(name="usage", data={"input_tokens": int(read), "output_tokens": int(written)}):
                self.tokens = Tokens(self.tokens.read + read, self.tokens.written + written)
            case MessageEntry(message=message):
                self._named.update(_key(message, call.get("id")) for call in objects(message.get("tool_calls")))
                if message.get("role") == "user" and (text := _first_line(message)):
                    self.questions.append((entry.n, text))
        for index, (key, _) in enumerate(_results(entry)):
            self._results[key].append((position, index))

    def is_event(self, key: Key) -> bool:
        """Whether a call is an event, whatever else names it; looks as far as it must."""
        while not self._events[key] and self.look_on():
            pass
        return self._events[key] > 0

    def has_call(self, key: Key, number: int) -> bool:
        """Whether a key has a call of that number, from 0 on; looks as far as it must."""
        while (self._events[key] or self._named[key]) <= number and self.look_on():
            pass
        return (self._events[key] or self._named[key]) > number

    def result(self, key: Key, number: int) -> Result | None:
        """The result of that number that a key has, from 0 on; looks as far as it must."""
        found = self._results[key]
        while len(found) <= number and self.look_on():
            pass
        if len(found) <= number:
            return None
        position, index = found[number]
        return list(_results(self._log.at(position)))[index][1]


class Conversation:
    """The conversation of a log: iterate it, once, for the turns. ``index`` is then as far as the turns, or further."""

    def __init__(self, log: LogFile) -> None:
        self._log = log
        self.index = Index(log)
        self._calls_met = Counter[Key]()
        self._results_met = Counter[Key]()

    def __iter__(self) -> Iterator[Turn | Notice]:
        for entry in self._log:
            self.index.look_on()
            yield from self._turns(entry)

    def _turns(self, entry: Entry) -> Iterator[Turn | Notice]:
        match entry:
            case MessageEntry(message=message):
                yield from self._message(entry, message)
            case MarkEntry(name="tool_call", data=dict(data)):
                yield Turn(entry.n, moment(entry), "tool", [self._call(_key(data, data.get("id")), data)])
            case MarkEntry(name="tool_result", data=dict()):
                if lone := self._lone_results(entry):
                    yield Turn(entry.n, moment(entry), "tool", lone)
            case MarkEntry(name=name, data=dict(data)) if name in _NOTICES:
                if text := _NOTICES[name](data):
                    yield Notice(entry.n, moment(entry), name, text)
            case CutEntry(data=data):
                yield Notice(entry.n, moment(entry), "cut", str(data.get("reason")), list(_summary(entry)))

    def _message(self, entry: MessageEntry, message: Mapping[str, Any]) -> Iterator[Turn]:
        parts: list[Part] = [*_said(message), *self._lone_results(entry)]
        for call in objects(message.get("tool_calls")):
            key = _key(message, call.get("id"))
            if not self.index.is_event(key):
                parts.append(self._call(key, call))
        if parts or message.get("role") != "tool":
            yield Turn(entry.n, moment(entry), str(message.get("role", "?")), parts)

    def _call(self, key: Key, call: Mapping[str, Any]) -> Call:
        """A call with the result that is its own: the first call of a key has the first result of it."""
        result = self.index.result(key, self._calls_met[key])
        self._calls_met[key] += 1
        return Call(str(call.get("name")), call.get("arguments"), result)

    def _lone_results(self, entry: Entry) -> list[Result]:
        """The results of an entry that belong to no call."""
        lone = []
        for key, result in _results(entry):
            if not self.index.has_call(key, self._results_met[key]):
                lone.append(result)
            self._results_met[key] += 1
        return lone


def moment(entry: Entry) -> datetime | None:
    """When it happened: what an imported line says itself, else when the entry was recorded."""
    own = entry.message if isinstance(entry, MessageEntry) else entry.data
    said = own.get("timestamp") if isinstance(own, dict) else None
    try:
        if isinstance(said, str):
            found = datetime.fromisoformat(said).astimezone(UTC)
        else:
            found = datetime.fromtimestamp(entry.time / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return found if 1 < found.year <= _LAST_YEAR else None


def objects(value: object) -> list[dict[str, Any]]:
    """The objects in an array; nothing of what is no array."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _key(of_run: Mapping[str, Any], call_id: object) -> Key:
    run = of_run.get("run")
    return run if isinstance(run, str) else None, str(call_id)


def _results(entry: Entry) -> Iterator[tuple[Key, Result]]:
    match entry:
        case MessageEntry(message=message):
            for part in objects(message.get("content")):
                if part.get("type") == "tool_result":
                    yield _key(message, part.get("tool_call_id")), _result(part)
            if _is_result(message):
                yield _key(message, message["tool_call_id"]), _result(message)
        case MarkEntry(name="tool_result", data=dict(data)):
            yield _key(data, data.get("tool_call_id")), _result(data)


def _is_result(message: Mapping[str, Any]) -> bool:
    """Whether a tool message is itself a result, and not its parts are."""
    named = isinstance(message.get("tool_call_id"), str) and message.get("role") == "tool"
    return named and not any(part.get("type") == "tool_result" for part in objects(message.get("content")))


def _result(value: Mapping[str, Any]) -> Result:
    return Result(list(_parts(value.get("content"))), value.get("is_error") is True)


def _said(message: Mapping[str, Any]) -> Iterator[Part]:
    """What a message says itself, without the results in it."""
    if not _is_result(message):
        yield from _parts(message.get("content"))


def _parts(content: object) -> Iterator[Part]:
    if isinstance(content, str):
        yield Text(content)
    for part in objects(content):
        match part:
            case {"type": "tool_result"}:
                continue
            case {"type": "text", "text": str(text)}:
                yield Text(text)
            case {"type": "thinking", "thinking": str(text)}:
                yield Thought(text)
            case _:
                where = part.get("url") or part.get("path")
                yield Media(str(part.get("type")), where if isinstance(where, str) else "")


def _summary(cut: CutEntry) -> Iterator[Turn]:
    for message in objects(cut.data.get("summary")):
        yield Turn(cut.n, None, str(message.get("role", "?")), list(_said(message)))


def _first_line(message: Mapping[str, Any]) -> str:
    texts = (part.text for part in _said(message) if isinstance(part, Text))
    return next(filter(None, (text.strip().split("\n", 1)[0][:_QUESTION_LENGTH] for text in texts)), "")


def _error(data: Mapping[str, Any]) -> str:
    return f"{data.get('code')}: {data.get('message')}"


def _done(data: Mapping[str, Any]) -> str:
    status = data.get("status")
    return "" if status == "ok" else f"the run ended: {status}"


def _checkpoint(data: Mapping[str, Any]) -> str:
    return f"snapshot {data.get('snapshot')} of {data.get('workspace')}"


_NOTICES = {"error": _error, "done": _done, "checkpoint": _checkpoint}
