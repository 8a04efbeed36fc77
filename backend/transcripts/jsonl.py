"""``jsonl``: a file of messages lines, each kept byte for byte (spec 4.2, import)."""

from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from backend.strict_json import MAX_LINE, lenient_object
from backend.transcripts.records import (
    Converted,
    Identity,
    Record,
    converted,
    judged,
    made,
    parsed,
    session_name,
    time_of,
)


def identify(file: BinaryIO, stem: str) -> Identity:
    """The session is called after the file; messages lines do not say more."""
    del file
    return Identity(session_name(stem))


def convert(file: BinaryIO, scope: str) -> Iterator[Record]:
    """One message a line; only a line over 1 MiB is written anew, its biggest parts as blobs.

    A message's time is its ``timestamp``, which the importers of other formats write.
    """
    return converted(file, partial(_read, scope))


def _read(scope: str, number: int, raw: bytes | None) -> Iterator[Record]:
    if raw is not None and len(raw) <= MAX_LINE:
        yield judged(Converted(number, "messages", raw, time=_time(raw)), scope)
    else:
        value = parsed(raw)
        yield made(number, "messages", value, scope, time_of(value.get("timestamp")))


def _time(raw: bytes) -> int | None:
    if b'"timestamp"' not in raw:
        return None
    try:
        return time_of(lenient_object(raw).get("timestamp"))
    except ValueError:
        return None
