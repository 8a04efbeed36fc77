"""What every format's converter yields, and the tools they share (spec 4.2, import). Pure."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

from backend.errors import CtxError
from backend.lines import parse_line
from backend.names import is_session_name
from backend.store import Stream
from backend.transcripts.blobs import Blob, encoded

MAX_SOURCE_LINE = 64 << 20
MAX_NAME = 64


class Converted(NamedTuple):
    """A valid line for ``stream``, without its newline, from line ``number`` (from 1) of the source."""

    number: int
    stream: Stream
    raw: bytes
    blobs: tuple[Blob, ...] = ()


class Unreadable(NamedTuple):
    """A source line that gives no valid line; the reason quotes nothing of it."""

    number: int
    reason: str


class Identity(NamedTuple):
    """What a source calls its session: a session name, and its UUID if it has one."""

    name: str
    uuid: str | None = None


Record = Converted | Unreadable


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


def judged(number: int, stream: Stream, raw: bytes, scope: str, blobs: Sequence[Blob] = ()) -> Record:
    """The line as a record, by all the rules for lines from outside."""
    try:
        parse_line(stream, raw, scope=scope)
    except CtxError as error:
        return Unreadable(number, str(error))
    return Converted(number, stream, raw, tuple(blobs))


def made(number: int, stream: Stream, value: dict[str, Any], scope: str) -> Record:
    """A line from a value that was built here; what exceeds a line goes into blobs."""
    raw, blobs = encoded(value)
    return judged(number, stream, raw, scope, blobs)


def session_name(text: str) -> str:
    """``text`` as a session name: itself if it is one, else a slug of it (spec 1.1)."""
    if is_session_name(text):
        return text
    slug = re.sub(r"[^a-zA-Z0-9._+-]+", "-", text).lstrip("._+-")[:MAX_NAME].rstrip("-")
    slug = re.sub(r"\.(sock|d)$", r"-\1", slug)
    return slug if is_session_name(slug) else f"session-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
