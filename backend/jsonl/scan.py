"""Looking at log files line by line: where lines are, which are malformed, and what they say (spec 1.5, last point).

Reads sequentially and holds no more than a line (16 MiB at most; longer ones are passed over). Nothing is repaired.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from backend import facts
from backend.jsonl.disk import read_range
from backend.jsonl.order import Base, OrderLine
from backend.lines import foreign_fault, foreign_line
from backend.store import Line, Session, Stream
from backend.strict_json import MAX_FOREIGN_LINE

_CHUNK = 1 << 20
_REQUESTS = 512


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


def walk(descriptor: int, size: int) -> Iterator[Found]:
    """The lines in the first ``size`` bytes of a file, a torn last one included."""
    offset = 0
    for number, (raw, length, whole) in enumerate(_split(descriptor, size), 1):
        if not whole:
            fault: str | None = "the newline at its end is missing"
        elif length > len(raw):
            fault = "it has more than 16 MiB"
        else:
            fault = foreign_fault(raw)
        yield Found(number, offset, length, raw, fault)
        offset += length + 1


def _split(descriptor: int, size: int) -> Iterator[tuple[bytes, int, bool]]:
    """Each line's bytes (none if too long), its length, and whether a newline ends it."""
    held, length, at = [b""], 0, 0
    while at < size:
        chunk = read_range(descriptor, at, min(_CHUNK, size - at))
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


class Facts:
    """Derives a session's row from its lines, given in log order (``backend.facts``).

    ``row`` is that of the empty session. The facts of a foreign session's first entries are those of its ``base``,
    but for latest.md, which is always what the messages say.
    """

    def __init__(self, row: Session, base: Base | None = None) -> None:
        self._row = row
        self._base = base
        self._lines: list[Line] = []
        self._last = OrderLine(-1, row.updated_at, "messages", 0, 0, row.seq)

    def add(self, at: OrderLine, raw: bytes) -> None:
        """The next entry."""
        line = _message_only(at.stream, raw) if self._base else foreign_line(at.stream, raw)
        self._lines.append(line)
        self._last = at
        # cwd_seq is the sequence of the batch, so a batch ends where a cwd is recorded.
        if line.cwd is not None or len(self._lines) >= _REQUESTS:
            self._advance()
        if self._base and at.n + 1 == self._base.entries:
            self._settle(self._base)

    def row(self) -> Session:
        """The row after all entries; its sizes and mtimes are for the caller to set."""
        self._advance()
        if self._base:
            self._settle(self._base)
        return self._row

    def _advance(self) -> None:
        if self._lines:
            last = self._last
            self._row, _ = facts.advance(self._row, self._lines, time_ms=last.time, now_ns=0, seq=last.seq)
            self._lines = []

    def _settle(self, base: Base) -> None:
        self._advance()
        values = {name: getattr(base, name) for name in ("state", "cwd", "cwd_seq", "meta", "updated_at")}
        self._row = msgspec.structs.replace(self._row, **values)
        self._base = None


def _message_only(stream: Stream, raw: bytes) -> Line:
    """A foreign line without what its event would change; the parse is spared where it cannot matter."""
    if stream == "events":
        return Line(stream, raw, "mark", "")
    if b"assistant" in raw or b"\\u" in raw:
        return foreign_line(stream, raw)
    return Line(stream, raw, "message", "")
