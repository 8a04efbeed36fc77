"""``<session>/.store/journal``: what the last request was about to write, and what the session is after it.

Written before a request touches messages.jsonl, events.jsonl and order.jsonl (in this sequence; order.jsonl last is
the commit). So when a process dies in between, the record proves which bytes are that request's and they are cut
back; bytes that no record accounts for are not ours and are never touched (spec 1.5, 2.9). The record also holds the
session's facts, so a settled session is opened without reading its log.
"""

import zlib

import msgspec

from backend.jsonl.disk import read_range, write_range
from backend.rows import Session

_MAX_RECORD = 1024 * 1024


class Sizes(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of the three files."""

    messages: int
    events: int
    order: int

    def within(self, low: "Sizes", high: "Sizes") -> bool:
        return (
            low.messages <= self.messages <= high.messages
            and low.events <= self.events <= high.events
            and low.order <= self.order <= high.order
        )


class Record(msgspec.Struct, frozen=True):
    """A request takes the files from ``old`` to ``new`` and the session to ``after``.

    ``floor``: sizes known to be on disk, which is all that is sure after a power cut.
    """

    old: Sizes
    new: Sizes
    floor: Sizes
    after: Session


def write_record(descriptor: int, record: Record) -> None:
    """In place and in one write: a torn record does not pass its checksum, and then no file was touched yet."""
    body = msgspec.json.encode(record)
    write_range(descriptor, b"%08x %b\n" % (zlib.crc32(body), body), 0)


def read_record(descriptor: int) -> Record | None:
    """None where there is none, or a torn one."""
    line, _, _ = read_range(descriptor, 0, _MAX_RECORD).partition(b"\n")
    check, _, body = line.partition(b" ")
    if check != b"%08x" % zlib.crc32(body):
        return None
    try:
        return msgspec.json.decode(body, type=Record)
    except msgspec.DecodeError:
        return None
