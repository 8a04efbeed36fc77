"""Lines that are committed, and are not yet in the rows of their sessions: in memory, and as rows of ``pending``.

A commit of appends stores one row that holds all of its lines, instead of pages of every session that it touches.
``Waiting`` is what such rows amount to; who reads a session reads it too. Pure: no SQL, no disk.
"""

import dataclasses
import struct
from collections.abc import Iterator, Sequence

import msgspec

from backend.facts import stream_size
from backend.lines import foreign_line
from backend.rows import Append, Line, Owner, Row, Session, Stream

LIMIT = 128 << 10
"""So much may wait: what is merged at once takes a few ms, and what is read again at opening as well."""
DIRECT = 32 << 10
"""A commit of more than that goes to the rows of its sessions at once, instead of being written twice."""
_SESSION_SIZE = 2 << 10
"""What each session counts beside its lines: merging it writes some pages."""


class Stored(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An append as ``pending`` keeps it: times as int64, for each line whether it is an event; the run it begins."""

    session: int
    seq: int
    times: bytes
    lines: list[tuple[bool, bytes]]
    begins: str | None = None


class Commit(msgspec.Struct, frozen=True, array_like=True):
    """A row of ``pending``: when it was made (ns), and its appends in order."""

    now: int
    appends: list[Stored]


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Commit).decode


def stored(after: Session, append: Append, times: Sequence[int]) -> Stored:
    """The append that led to ``after``."""
    return Stored(
        after.id,
        after.seq,
        struct.pack(f"<{len(times)}q", *times),
        [(line.stream == "events", line.raw) for line in append.lines],
        append.begins,
    )


def restored(append: Stored) -> tuple[list[Line], Sequence[int]]:
    """The lines and times of an append; what a line changes follows from its bytes."""
    times = struct.unpack(f"<{len(append.times) // 8}q", append.times)
    return [foreign_line("events" if event else "messages", raw) for event, raw in append.lines], times


@dataclasses.dataclass(slots=True)
class Unmerged:
    """A session with lines that wait: as its rows say, as it is, and those lines.

    ``risen``: it came to the top of index/list by them; ``moved``: they record its cwd again; ``begins``: the run that
    began last.
    """

    merged: Session
    session: Session
    risen: bool = False
    moved: bool = False
    begins: str | None = None
    lines: list[Line] = dataclasses.field(default_factory=list)
    times: list[int] = dataclasses.field(default_factory=list)
    _texts: dict[Stream, bytearray] = dataclasses.field(
        default_factory=lambda: {"messages": bytearray(), "events": bytearray()}
    )
    _joined: int = 0

    def read(self, stream: Stream, start: int, end: int) -> bytes:
        """Bytes of a stream from offset ``start``, which is in a line that waits, or before all of them."""
        first = stream_size(self.merged, stream)
        for line in self.lines[self._joined :]:
            self._texts[line.stream] += line.raw + b"\n"
        self._joined = len(self.lines)
        return bytes(memoryview(self._texts[stream])[max(start - first, 0) : max(end - first, 0)])

    def rows(self, start: int, end: int) -> Iterator[Row]:
        """The entries from ``start`` up to ``end`` that wait."""
        first = self.merged.n
        for n in range(max(start, first), end):
            line = self.lines[n - first]
            yield Row(n, self.times[n - first], line.kind, line.stream, line.raw)


class Waiting:
    """All lines that wait, and the owners whose list or current session is another by them.

    ``holders``: to which session by-cwd/<key> of an owner leads by them. ``size``: bytes that merging writes, roughly.
    """

    def __init__(self) -> None:
        self.sessions: dict[int, Unmerged] = {}
        self.owners: dict[int, Owner] = {}
        self.holders: dict[tuple[int, str], int] = {}
        self.size = 0

    def add(self, before: Session, after: Session, lines: Sequence[Line], times: Sequence[int]) -> Unmerged:
        """Takes lines in that lead from ``before`` to ``after``; their own size is the caller's to add."""
        unmerged = self.sessions.get(after.id)
        if unmerged is None:
            unmerged = self.sessions[after.id] = Unmerged(before, after)
            self.size += _SESSION_SIZE
        unmerged.session = after
        unmerged.lines += lines
        unmerged.times += times
        return unmerged

    @property
    def moves(self) -> bool:
        """Whether tables beside those of sessions, owners and lists will change."""
        return bool(self.holders) or any(unmerged.begins for unmerged in self.sessions.values())

    def risen(self, owner: int) -> list[Session]:
        """The sessions that came to the top of an owner's list, the highest first."""
        risen = (waiting.session for waiting in self.sessions.values() if waiting.risen)
        return sorted((one for one in risen if one.owner == owner), key=lambda one: one.seq, reverse=True)
