"""``jsonl``: a file of messages lines, each kept byte for byte (spec 4.2, import)."""

from collections.abc import Iterator
from typing import BinaryIO

from backend.strict_json import MAX_LINE, lenient_object
from backend.transcripts.records import Identity, Record, Unreadable, judged, made, numbered_lines, session_name


def identify(file: BinaryIO, stem: str) -> Identity:
    """The session is called after the file; messages lines do not say more."""
    del file
    return Identity(session_name(stem))


def convert(file: BinaryIO, scope: str) -> Iterator[Record]:
    """One message a line; only a line over 1 MiB is written anew, its biggest parts as blobs."""
    for number, raw in numbered_lines(file):
        if raw is None:
            yield Unreadable(number, "the line has more than 64 MiB")
        elif len(raw) <= MAX_LINE:
            yield judged(number, "messages", raw, scope)
        else:
            yield _shortened(number, raw, scope)


def _shortened(number: int, raw: bytes, scope: str) -> Record:
    try:
        return made(number, "messages", lenient_object(raw), scope)
    except ValueError as error:
        return Unreadable(number, str(error))
