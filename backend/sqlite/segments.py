"""The packed form of a log's rows (``segment`` and ``log`` in schema.sql): lines ⇄ bytes, and arithmetic on them.

Pure: no SQL, no disk. Numbers and offsets inside a ``Part`` are relative to it; a ``Checkpoint`` is absolute.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, get_args

from backend.rows import Kind, Line, Row, Stream

WINDOW = 256 << 10
"""Rows that begin in one window of that many bytes become one; a new row holds no more unless one line does."""
RECORD_WEIGHT = 16
"""What a byte of a record counts for in that: who looks for one entry reads all records of its row, and no line."""
ROW_LIMIT = 3900
"""Bytes that a row may grow to by appends: with its other columns it still fits a database page of 4 KiB."""

UNREADABLE = (ValueError, LookupError, struct.error)
"""What unpacking raises of a row that is not what was packed."""

_RECORD = struct.Struct("<qIB")
RECORD_SIZE = _RECORD.size
_FLAGS_AT = RECORD_SIZE - 1
_STREAMS: tuple[Stream, ...] = get_args(Stream)
_KINDS: tuple[Kind, ...] = get_args(Kind)
_EVENTS = _STREAMS.index("events")
_KIND_FLAG = {kind: number << 1 for number, kind in enumerate(_KINDS)}
_LATEST, _STATE, _CWD, _META = 8, 16, 32, 64
# Tables for bytes.translate, which searches thousands of flags as fast as one: 1 where the flag is set, else 0.
_HAS = {flag: bytes(bool(flags & flag) for flags in range(256)) for flag in (_EVENTS, _LATEST, _STATE, _CWD, _META)}


class Outline(NamedTuple):
    """A ``Part`` without its lines: their records, and how many bytes of each stream they are."""

    entries: bytes
    messages: int
    events: int

    @property
    def length(self) -> int:
        """The number of entries."""
        return len(self.entries) // RECORD_SIZE

    @property
    def size(self) -> int:
        """Bytes in all, those of the lines included."""
        return len(self.entries) + self.messages + self.events


class Part(NamedTuple):
    """The three blobs of a segment row, or of what is added to one."""

    entries: bytes
    messages: bytes
    events: bytes

    @property
    def outline(self) -> Outline:
        return Outline(self.entries, len(self.messages), len(self.events))

    @property
    def length(self) -> int:
        """The number of entries."""
        return len(self.entries) // RECORD_SIZE

    @property
    def size(self) -> int:
        """Bytes in all."""
        return len(self.entries) + len(self.messages) + len(self.events)


class Checkpoint(NamedTuple):
    """What the first ``n`` entries of a log amount to; the columns of that name in ``log`` and ``segment``."""

    n: int = 0
    messages: int = 0
    events: int = 0
    latest_n: int | None = None
    state_n: int | None = None
    cwd_n: int | None = None
    meta_n: int | None = None

    @property
    def start(self) -> int:
        """Bytes of both streams."""
        return self.messages + self.events


BEGINNING = Checkpoint()


def pack(lines: Sequence[Line], times: Sequence[int], messages: int = 0, events: int = 0) -> Part:
    """The lines as they are added to a row that holds so many bytes of each stream."""
    entries: list[bytes] = []
    texts: list[bytes] = []
    notes: list[bytes] = []
    for line, time in zip(lines, times, strict=True):
        flags = _KIND_FLAG[line.kind]
        if line.latest_size is not None:
            flags |= _LATEST
        if line.state is not None:
            flags |= _STATE
        if line.cwd is not None:
            flags |= _CWD
        if line.meta is not None:
            flags |= _META
        raw = line.raw + b"\n"
        if line.stream == "messages":
            entries.append(_RECORD.pack(time, messages, flags))
            texts.append(raw)
            messages += len(raw)
        else:
            entries.append(_RECORD.pack(time, events, flags | _EVENTS))
            notes.append(raw)
            events += len(raw)
    return Part(b"".join(entries), b"".join(texts), b"".join(notes))


def packed_size(lines: Sequence[Line]) -> int:
    """What ``pack`` would make of them, in bytes."""
    return len(lines) * (RECORD_SIZE + 1) + sum([len(line.raw) for line in lines])


def chunks(lines: Sequence[Line]) -> Iterator[slice]:
    """Where to cut ``lines`` so that each piece packs into ``WINDOW``, or is one line."""
    return _runs([RECORD_WEIGHT * RECORD_SIZE + len(line.raw) + 1 for line in lines])


def joinable(weights: Sequence[int]) -> Iterator[slice]:
    """Which consecutive rows of these weights to join: runs of two and more that fit ``WINDOW``."""
    return (run for run in _runs(weights) if run.stop - run.start > 1)


def join(parts: Sequence[Part]) -> Part:
    """The row that consecutive rows become."""
    messages = events = 0
    entries: list[bytes] = []
    for part in parts:
        moved = ((time, start + (events if flags & 1 else messages), flags) for time, start, flags in _records(part))
        entries += (_RECORD.pack(*record) for record in moved)
        messages += len(part.messages)
        events += len(part.events)
    return Part(b"".join(entries), b"".join(p.messages for p in parts), b"".join(p.events for p in parts))


def after(begin: Checkpoint, part: Outline) -> Checkpoint:
    """The checkpoint behind ``part``, which begins at ``begin``."""
    sets = part.entries[_FLAGS_AT::RECORD_SIZE]
    values = (
        last if (found := sets.translate(_HAS[flag]).rfind(1)) < 0 else begin.n + found
        for last, flag in zip(begin[3:], (_LATEST, _STATE, _CWD, _META), strict=True)
    )
    return Checkpoint(begin.n + part.length, begin.messages + part.messages, begin.events + part.events, *values)


def begun(part: Outline, count: int) -> Outline:
    """The first ``count`` entries of a row."""
    streams = part.entries[count * RECORD_SIZE + _FLAGS_AT :: RECORD_SIZE].translate(_HAS[_EVENTS])
    messages, events = (_begins(part, count, streams.find(flag)) for flag in (0, 1))
    return Outline(
        part.entries[: count * RECORD_SIZE],
        part.messages if messages is None else messages,
        part.events if events is None else events,
    )


def prefix(part: Part, count: int) -> Part:
    """The first ``count`` entries of a row, with their lines."""
    entries, messages, events = begun(part.outline, count)
    return Part(entries, part.messages[:messages], part.events[:events])


def time_of(part: Outline, number: int) -> int:
    """The ms time of an entry."""
    [time, _, _] = _RECORD.unpack_from(part.entries, number * RECORD_SIZE)
    return int(time)


def _begins(part: Outline, count: int, after: int) -> int | None:
    """Where the line begins of the entry that is so many after the first ``count``; None of none (-1)."""
    if after < 0:
        return None
    [_, start, _] = _RECORD.unpack_from(part.entries, (count + after) * RECORD_SIZE)
    return int(start)


def unpack(part: Part, first_n: int, start: int, stop: int) -> Iterator[Row]:
    """The entries ``start`` to ``stop`` of a row whose first is ``first_n``; bounds outside it are cut to it."""
    low, high = max(start - first_n, 0), min(stop - first_n, part.length)
    for n, (time, at, flags) in zip(range(first_n + low, first_n + high), _records(part, low), strict=False):
        data = part.events if flags & 1 else part.messages
        yield Row(n, time, _KINDS[flags >> 1 & 3], _STREAMS[flags & 1], data[at : data.index(b"\n", at)])


def _records(part: Part, first: int = 0) -> Iterator[tuple[int, int, int]]:
    return _RECORD.iter_unpack(memoryview(part.entries)[first * RECORD_SIZE :])


def _runs(weights: Sequence[int]) -> Iterator[slice]:
    cuts, total = [0], 0
    for number, weight in enumerate(weights):
        if total and total + weight > WINDOW:
            cuts.append(number)
            total = 0
        total += weight
    cuts.append(len(weights))
    return (slice(a, b) for a, b in pairwise(cuts))
