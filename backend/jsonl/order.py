"""``<session>/.store/order.jsonl``: the header of a session and one line per entry, in log order (spec 2.9).

The two log files say what was logged, this file in which order, when, and as parts of which request. Its entry
lines are JSON padded with blanks to one width, so entry n is found without reading those before it. This module
knows the format; ``backend.jsonl.log`` says how much of the file counts.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from backend.entries import SessionHeader
from backend.errors import SessionError
from backend.jsonl.disk import read_range
from backend.rows import Line, Session, Stream

WIDTH = 160
_MAX_TIME = 1 << 63
_BATCH = 4096
_FIRST_READ = 4096
_STREAMS: tuple[Stream, Stream] = ("messages", "events")


class OrderLine(msgspec.Struct, frozen=True):
    """Entry ``n``: its ms time, and ``length`` bytes (without the newline) at ``offset`` of the stream's file.

    ``seq``: the store's commit sequence of its request; ``more``: how many entries of that request follow.
    """

    n: int
    time: int
    stream: Stream
    offset: int
    length: int
    seq: int = 0
    more: int = 0

    @property
    def end(self) -> int:
        """Where the next line of the stream begins."""
        return self.offset + self.length + 1


class Base(msgspec.Struct, frozen=True):
    """What the small files of a foreign session said when it was first appended to: its first ``entries`` entries
    are foreign, and these values hold after them."""

    entries: int
    state: str
    cwd: str
    cwd_seq: int
    meta: str
    updated_at: int


class OrderHeader(SessionHeader, frozen=True, kw_only=True):
    """The first line: the session's header (spec 2.1), the sequence of its creation, and where it came from."""

    seq: int = 0
    base: Base | None = None


def stored_header(header: SessionHeader, seq: int, base: Base | None = None) -> OrderHeader:
    """The header as it is stored."""
    return OrderHeader(**msgspec.structs.asdict(header), seq=seq, base=base)


def plain_header(stored: OrderHeader) -> SessionHeader:
    """The header without what only this store knows."""
    return SessionHeader(**{name: getattr(stored, name) for name in SessionHeader.__struct_fields__})


def encode_header(header: OrderHeader) -> bytes:
    """The first line of the file; ``SessionError`` for text that no UTF-8 says."""
    try:
        return msgspec.json.encode(header) + b"\n"
    except UnicodeEncodeError:
        raise SessionError("a session's header must not hold half a surrogate pair") from None


def encode_line(line: OrderLine) -> bytes:
    """An entry line; ``SessionError`` for a time that no clock shows."""
    if not -_MAX_TIME <= line.time < _MAX_TIME:
        raise SessionError(f"the time of an entry must be in ms since the epoch, not {line.time}")
    return msgspec.json.encode(line).ljust(WIDTH - 1) + b"\n"


def decode_line(raw: bytes, n: int) -> OrderLine:
    """``ValueError`` for anything but the whole line of entry ``n``."""
    if len(raw) != WIDTH or raw[-1:] != b"\n":
        raise ValueError("a torn line")
    line = msgspec.json.decode(raw, type=OrderLine)
    if line.n != n:
        raise ValueError(f"entry {line.n} where {n} should be")
    return line


def order_of(lines: Sequence[Line], times: Sequence[int], row: Session, seq: int) -> Iterator[OrderLine]:
    """The order of a request appended to the session as ``row`` has it."""
    ends = {"messages": row.messages_size, "events": row.events_size}
    for index, (line, time) in enumerate(zip(lines, times, strict=True)):
        offset, length = ends[line.stream], len(line.raw)
        ends[line.stream] = offset + length + 1
        yield OrderLine(row.n + index, time, line.stream, offset, length, seq, len(lines) - index - 1)


def read_header(descriptor: int) -> tuple[OrderHeader, int]:
    """The header and the bytes it takes; ``ValueError`` where there is none."""
    wanted = _FIRST_READ
    while True:
        content = read_range(descriptor, 0, wanted)
        end = content.find(b"\n")
        if end >= 0:
            return msgspec.json.decode(content[:end], type=OrderHeader), end + 1
        if len(content) < wanted:
            raise ValueError("its header is torn")
        wanted *= 8


class Order(Protocol):
    """The entries of a session in log order."""

    def __len__(self) -> int: ...
    def lines(self, start: int, stop: int) -> Sequence[OrderLine]:
        """Entries ``start`` to ``stop``, as far as there are any."""
        ...


class FileOrder:
    """The first ``length`` entry lines of an order.jsonl whose header takes ``header_size`` bytes.

    ``descriptor`` gives the open file: descriptors are few and come and go.
    """

    def __init__(self, descriptor: Callable[[], int], header_size: int, length: int) -> None:
        self._descriptor = descriptor
        self._header_size = header_size
        self._length = length

    def __len__(self) -> int:
        return self._length

    @property
    def size(self) -> int:
        """Bytes of the file that count."""
        return self._header_size + self._length * WIDTH

    def extend(self, count: int) -> None:
        """The file has been extended by so many lines."""
        self._length += count

    def through(self, descriptor: Callable[[], int]) -> "FileOrder":
        """The same order, its open file got from elsewhere."""
        return FileOrder(descriptor, self._header_size, self._length)

    def lines(self, start: int, stop: int) -> Sequence[OrderLine]:
        """``ValueError`` where the file holds something else."""
        count = max(0, min(stop, self._length) - start)
        content = read_range(self._descriptor(), self._header_size + start * WIDTH, count * WIDTH)
        if len(content) != count * WIDTH:
            raise ValueError("it is shorter than it was")
        return [decode_line(content[at : at + WIDTH], start + at // WIDTH) for at in range(0, len(content), WIDTH)]


class MemoryOrder:
    """The order of a session that has no sound order.jsonl, as found by looking at its files (40 bytes an entry)."""

    def __init__(self) -> None:
        self._fields = array("q")

    def __len__(self) -> int:
        return len(self._fields) // 5

    def add(self, stream: Stream, time: int, offset: int, length: int, seq: int) -> OrderLine:
        """The next entry, a request of its own."""
        line = OrderLine(len(self), time, stream, offset, length, seq)
        self._fields.extend((_STREAMS.index(stream), time, offset, length, seq))
        return line

    def lines(self, start: int, stop: int) -> Sequence[OrderLine]:
        return [self._line(n) for n in range(start, min(stop, len(self)))]

    def _line(self, n: int) -> OrderLine:
        stream, time, offset, length, seq = self._fields[5 * n : 5 * n + 5]
        return OrderLine(n, time, _STREAMS[stream], offset, length, seq)


def each(order: Order) -> Iterator[OrderLine]:
    """All lines, read a batch at a time."""
    for start in range(0, len(order), _BATCH):
        yield from order.lines(start, start + _BATCH)
