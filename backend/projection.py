"""The projection: what the model is sent, computed from the log (spec 2.5).

The last cut's summary, then every message after the cut entry. ``Projection`` looks at each entry once, as a log only
grows: it keeps the numbers of the messages and how long their lines are, about 5 bytes a message, and no message. What
it gives out is decoded from the rows on access. Used by sessions, and by context/messages.jsonl (spec 1.7), which
holds the same messages as lines. One thread.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from backend.entries import CutEntry, MessageEntry, NewEntry
from backend.lines import entry_of, line_of
from backend.rows import Row
from backend.sequences import Decoded
from backend.strict_json import compact, lenient_object

Rows = Callable[[int, int], Sequence[Row]]
"""Entries of a log as stored: those from a number on, at most so many."""

PAGE = 256
_BLOCK = 16
_WORTH_SKIPPING = 32


class Projection:
    """The projection of one log, as far as ``advance`` was told to look. ``Rows`` raises what reading may raise."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._seen = 0
        self._begin(None, ())

    def _begin(self, cut: int | None, summary: Sequence[Any]) -> None:
        # New arrays: sequences given out before go on reading the old ones.
        self.last_cut = cut
        self._summary = tuple(map(compact, summary))
        self._numbers = array("I")
        self._blocks = array("Q")
        self._size = sum(len(line) + 1 for line in self._summary)

    @property
    def size(self) -> int:
        """Bytes of the lines."""
        return self._size

    @property
    def memory(self) -> int:
        """Bytes that the lines take here."""
        return self.lines().memory

    def advance(self, length: int) -> None:
        """Looks at the entries below ``length`` that it has not seen; costs what is new."""
        for row in scan(self._rows, self._seen, length):
            self.take(row)

    def take(self, row: Row) -> None:
        """Looks at the next entry, which somebody has read already."""
        if row.kind == "cut":
            self._begin(row.n, _summary_of(row))
        elif row.kind == "message":
            self._add(row)
        self._seen = row.n + 1

    def _add(self, row: Row) -> None:
        if len(self._numbers) % _BLOCK == 0:
            self._blocks.append(self._size)
        self._numbers.append(row.n)
        self._size += len(_line(row)) + 1

    def messages(self) -> Decoded[Any]:
        """The messages, those of this moment for ever."""
        read = partial(_messages, self._rows, self._summary, self._numbers)
        return Decoded(len(self._summary) + len(self._numbers), read)

    def lines(self) -> "Lines":
        """The same as lines: each message as JSON and a newline."""
        return Lines(self._rows, self._summary, self._numbers, self._blocks, len(self._numbers), self._size)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the lines."""
        return self.lines().read(offset, size)


class Lines(NamedTuple):
    """The lines of one moment for ever, ``size`` bytes of them: what comes later in the arrays does not count."""

    rows: Rows
    summary: Sequence[bytes]
    numbers: Sequence[int]
    blocks: Sequence[int]
    length: int
    size: int

    @property
    def memory(self) -> int:
        """Bytes that they take here, in arrays that are shared with those of other moments."""
        arrays = 4 * len(self.numbers) + 8 * len(self.blocks)
        return arrays + sum(map(len, self.summary))

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of them, fewer only at the end. Costs what it returns."""
        end = min(offset + size, self.size)
        begin, lines = self._between(offset, end)
        return b"\n".join([*lines, b""])[max(0, offset - begin) : max(0, end - begin)]

    def _between(self, low: int, high: int) -> tuple[int, Iterator[bytes]]:
        """Lines that hold all bytes between two offsets, and the offset of their first."""
        first, last = bisect_right(self.blocks, low) - 1, bisect_left(self.blocks, high)
        stop = min(last * _BLOCK, self.length)
        lines = map(_line, _message_rows(self.rows, self.numbers, max(0, first) * _BLOCK, stop))
        return (0, chain(self.summary, lines)) if first < 0 else (self.blocks[first], lines)


def project(entries: Sequence[NewEntry]) -> Sequence[Any]:
    """The projection of a log that is given as entries (``SessionError`` for what is no entry)."""
    rows = [Row(n, 0, line.kind, line.stream, line.raw) for n, line in enumerate(map(line_of, entries))]
    projection = Projection(lambda start, limit: rows[start : start + limit])
    projection.advance(len(rows))
    return projection.messages()


def scan(rows: Rows, start: int, stop: int) -> Iterator[Row]:
    """The rows of a range, read a page at a time."""
    for first in range(start, stop, PAGE):
        yield from rows(first, min(PAGE, stop - first))


def _summary_of(row: Row) -> Sequence[Any]:
    """What a cut begins the projection with; nothing where a foreign line has no summary."""
    entry = entry_of(row)
    summary = entry.data.get("summary") if isinstance(entry, CutEntry) else None
    return summary if isinstance(summary, list) else ()


def _message(row: Row) -> dict[str, Any]:
    return _entry(row).message


def _line(row: Row) -> bytes:
    """The line of a message as the model is sent it: the stored bytes, but without ``meta``."""
    if b'"meta"' in row.raw or b"\\u" in row.raw:
        entry = _entry(row)
        if entry.meta is not None:
            return compact(entry.message)
    return row.raw


def _entry(row: Row) -> MessageEntry:
    entry = entry_of(row)
    assert isinstance(entry, MessageEntry)
    return entry


def _messages(rows: Rows, summary: Sequence[bytes], numbers: Sequence[int], start: int, stop: int) -> Iterator[Any]:
    before = len(summary)
    yield from map(_value, summary[start:stop])
    yield from map(_message, _message_rows(rows, numbers, max(0, start - before), max(0, stop - before)))


def _value(line: bytes) -> Any:
    return lenient_object(b'{"value":' + line + b"}")["value"]


def _message_rows(rows: Rows, numbers: Sequence[int], start: int, stop: int) -> Iterator[Row]:
    """The rows with the numbers of a range; what few others lie between are read with them."""
    for first, last in _spans(numbers, start, stop):
        for row in rows(first, last - first + 1):
            if row.kind == "message":
                yield row


def _spans(numbers: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Ranges of entries to read at once: first and last number."""
    if start >= stop:
        return
    first = numbers[start]
    for at in range(start + 1, stop):
        n, last = numbers[at], numbers[at - 1]
        if n - last > _WORTH_SKIPPING or n - first >= PAGE:
            yield first, last
            first = n
    yield first, numbers[stop - 1]
