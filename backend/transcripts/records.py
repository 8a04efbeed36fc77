"""What every format's converter yields, and the tools they share (spec 4.2, import). Pure."""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO, NamedTuple

from backend.errors import CtxError, InvalidValue
from backend.lines import fault_in, judge
from backend.names import child_name, is_session_name
from backend.rows import Stream
from backend.strict_json import is_suspect, lenient_object
from backend.transcripts.blobs import Blob, encoded

MAX_SOURCE_LINE = 64 << 20

_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<unstorable>\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2}))"
    rb"|\\.",
    re.DOTALL,
)
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()


class Position(NamedTuple):
    """How much of a log is before a place in it: lines of messages.jsonl and of events.jsonl."""

    messages: int = 0
    events: int = 0

    @property
    def entries(self) -> int:
        return self.messages + self.events

    def after(self, stream: Stream) -> "Position":
        """The place behind one more line."""
        return (
            Position(self.messages + 1, self.events)
            if stream == "messages"
            else Position(self.messages, self.events + 1)
        )


class Converted(NamedTuple):
    """A valid line for ``stream``, without its newline, from line ``number`` (from 1) of the source.

    ``time`` in ms, None where the source has none. ``chain``: 0 for the source's session, else that of a ``Child``.
    ``replaced``: it has U+FFFD where the source had what no line may hold (``made``).
    """

    number: int
    stream: Stream
    raw: bytes
    blobs: tuple[Blob, ...] = ()
    time: int | None = None
    chain: int = 0
    replaced: bool = False


class Unreadable(NamedTuple):
    """A source line that gives no valid line; the reason quotes nothing of it. ``file``: below a source directory."""

    number: int
    reason: str
    file: str = ""


class Child(NamedTuple):
    """The lines of ``chain`` that follow are those of a child of chain ``parent``, with its lines up to ``at``.

    ``key``: 8 hex digits that make its name (``names.child_name``), the same whenever it is imported.
    """

    chain: int
    parent: int
    at: Position
    key: str


class Identity(NamedTuple):
    """What a source calls its session: a session name, its UUID if it has one, and the id of the one it belongs to.

    ``parent`` is the source's id of a session that started this one; it holds nothing of it.
    """

    name: str
    uuid: str | None = None
    parent: str | None = None


Record = Converted | Unreadable | Child


def numbered_lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """The lines of a file from 1 on, without their line breaks; None for one of more than 64 MiB."""
    number = 0
    while line := file.readline(MAX_SOURCE_LINE + 2):
        number += 1
        if len(line) <= MAX_SOURCE_LINE + 1:
            yield number, line.removesuffix(b"\n").removesuffix(b"\r")
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(MAX_SOURCE_LINE)
        yield number, None


def parsed(raw: bytes | None) -> dict[str, Any]:
    """The object that a line of ``numbered_lines`` is (``InvalidValue``: it is none)."""
    if raw is None:
        raise InvalidValue("the line has more than 64 MiB")
    try:
        return lenient_object(raw)
    except UnicodeDecodeError:
        raise InvalidValue("not UTF-8") from None
    except ValueError:
        raise InvalidValue("not one JSON object" if raw.strip() else "a blank line") from None


def converted(file: BinaryIO, read: Callable[[int, bytes | None], Iterator[Record]]) -> Iterator[Record]:
    """What ``read`` makes of each of ``numbered_lines``; a line of which it raises ``InvalidValue`` is unreadable."""
    for number, raw in numbered_lines(file):
        try:
            yield from read(number, raw)
        except InvalidValue as error:
            yield Unreadable(number, str(error))


def objects(file: BinaryIO) -> Iterator[dict[str, Any]]:
    """The lines of a file that are JSON objects, whatever else is in it."""
    for _, raw in numbered_lines(file):
        with contextlib.suppress(InvalidValue):
            yield parsed(raw)


def judged(line: Converted, scope: str) -> Record:
    """The line, or why it is none, by all the rules for lines from outside."""
    try:
        judge(line.stream, line.raw, scope=scope)
    except CtxError as error:
        return Unreadable(line.number, str(error))
    return line


def made(
    number: int, stream: Stream, value: dict[str, Any], scope: str, time: int | None = None, chain: int = 0
) -> Record:
    """A line from a value that was built here; what exceeds a line goes into blobs.

    NUL and unpaired surrogates (tools print the one, texts that were cut end in the other) become U+FFFD.
    """
    raw, blobs = encoded(value)
    line = Converted(number, stream, raw, tuple(blobs), time, chain)
    if not blobs and not is_suspect(raw):
        fault = fault_in(stream, value, scope)
        return line if fault is None else Unreadable(number, fault)
    storable = _ESCAPES.sub(_storable, raw)
    return judged(line if storable == raw else line._replace(raw=storable, replaced=True), scope)


def _storable(escape: re.Match[bytes]) -> bytes:
    return escape[0] if escape["unstorable"] is None else _REPLACEMENT


def time_of(text: Any) -> int | None:
    """ms since the epoch of an ISO 8601 time (UTC where it names no zone), None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    ms = round(moment.timestamp() * 1000)
    return ms if ms >= 0 else None


def digest(*words: object) -> str:
    """32 hex digits for some words, the same in every process."""
    text = " ".join(map(str, words))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]


def session_name(text: str) -> str:
    """``text`` as a session name: itself if it is one, else a slug of it that no other text has (spec 1.1)."""
    if is_session_name(text):
        return text
    slug = re.sub(r"[^a-zA-Z0-9._+-]+", "-", text).strip("._+-")
    return child_name(slug or "session", digest(text)[:8])


def usage_of(counts: Any, names: Mapping[str, str]) -> dict[str, int] | None:
    """Counts of tokens under our names (``names``: theirs to ours); None unless those of input and output are there."""
    if not isinstance(counts, dict):
        return None
    found = {ours: counts[theirs] for theirs, ours in names.items() if type(counts.get(theirs)) is int}
    return found if {"input_tokens", "output_tokens"} <= found.keys() else None


def parts_of(content: str | list[Any]) -> list[dict[str, Any]]:
    """Content as parts; an empty text is none (``InvalidValue``: it has what is no part)."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content):
        raise InvalidValue("a part of the content is not an object with a type")
    return content
