"""Log files line by line: where lines are, and which are malformed (spec 1.5, last point).

Reads sequentially and holds no more than a line (16 MiB at most; longer ones are passed over). Nothing is repaired.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from backend.lines import foreign_fault
from backend.rows import Stream
from backend.strict_json import MAX_FOREIGN_LINE

_CHUNK = 1 << 20

Read = Callable[[int, int], bytes]
"""Bytes of a file from an offset on: at most so many, fewer where it likes, none at its end."""


class Found(NamedTuple):
    """A line as it lies in a file: ``number`` from 1, ``length`` without the newline, and why it is malformed.

    ``raw`` is empty where the line is too long.
    """

    number: int
    offset: int
    length: int
    raw: bytes
    fault: str | None

    def report(self, stream: Stream, fault: str | None = None) -> str:
        """What doctor says of it: file, line and byte offset."""
        return f"{stream}.jsonl line {self.number}, byte {self.offset}: {fault or self.fault}"


def walk(read: Read, size: int) -> Iterator[Found]:
    """The lines in the first ``size`` bytes of a file, a torn last one included."""
    offset = 0
    for number, (raw, length, whole) in enumerate(_split(read, size), 1):
        if not whole:
            fault: str | None = "the newline at its end is missing"
        elif length > len(raw):
            fault = "it has more than 16 MiB"
        else:
            fault = foreign_fault(raw)
        yield Found(number, offset, length, raw, fault)
        offset += length + 1


def _split(read: Read, size: int) -> Iterator[tuple[bytes, int, bool]]:
    """Each line's bytes (none if too long), its length, and whether a newline ends it."""
    held, length, at = [b""], 0, 0
    while at < size:
        chunk = read(at, min(_CHUNK, size - at))
        if not chunk:
            return
        at += len(chunk)
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            raw = _joined(held, length, end)
            yield raw, length + len(end), True
            held, length = [b""], 0
        length += len(rest)
        if length <= MAX_FOREIGN_LINE:
            held.append(rest)
        else:
            held.clear()
    if length:
        yield b"".join(held), length, False


def _joined(held: list[bytes], length: int, end: bytes) -> bytes:
    return b"" if length + len(end) > MAX_FOREIGN_LINE else b"".join((*held, end))
