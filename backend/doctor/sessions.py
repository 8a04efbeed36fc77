"""One session: its lines, the log's invariants, and what its files say against what its log says (spec 1.3, 1.5, 2.7).

A history that cannot be proven is looked at as files, line by line; any other as entries.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import get_args

import msgspec

from backend import facts
from backend.asking import Ask, read_stream, rows_of
from backend.checks import COUNT
from backend.doctor.faults import Fault
from backend.entries import Entry
from backend.errors import CtxError, Missing
from backend.foreign_files import walk
from backend.invariants import check_invariants
from backend.lines import entry_of, foreign_fault, foreign_line
from backend.rows import Line, Row, Session, Stream

MOST = 1000
"""So many faults of a session are reported, and that there are more."""

_BATCH = 256
_LOG_FACTS = ("n", "messages_size", "events_size", "latest_n", "latest_size")
_EVENT_FACTS = ("state", "cwd", "meta", "updated_at")
_FILES = {
    "n": "events.jsonl",
    "messages_size": "messages.jsonl",
    "events_size": "events.jsonl",
    "latest_n": "latest.md",
    "latest_size": "latest.md",
    "meta": "meta.json",
}


class Looked(msgspec.Struct, frozen=True):
    """What was found wrong, and how many entries were read."""

    faults: list[Fault]
    entries: int


def facts_of(form: str) -> Sequence[str]:
    """What follows from a session's log in a store of that form; in a foreign tree its other files may say more."""
    return _LOG_FACTS if form == "jsonl" else _LOG_FACTS + _EVENT_FACTS


def check_session(
    ask: Ask, session: Session, path: str, facts: Sequence[str], told: Callable[[int], None] = lambda _: None
) -> Looked:
    """All that is wrong with a session in the directory ``path``; that it cannot be read is one fault (``Missing``).

    ``facts``: those of it that are compared with its log. ``told`` is told now and then how many bytes were read.
    """
    try:
        return _checked(ask, session, path, facts, told)
    except Missing:
        raise
    except (CtxError, msgspec.MsgspecError, LookupError, ValueError, struct.error) as error:
        return Looked([Fault("history", path, f"it cannot be read: {error}")], 0)


def _checked(ask: Ask, session: Session, path: str, facts: Sequence[str], told: Callable[[int], None]) -> Looked:
    if session.fault is not None:
        faults = list(islice(_bad_lines(ask, session, path), MOST + 1))
        if not faults:
            faults = [Fault("history", path, session.fault)]
        return Looked(_bounded(faults, path), 0)
    reader = _Reader(session, path, told)
    broken = check_invariants(reader.entries(rows_of(ask, session.id, session.n)))
    faults = reader.faults
    for fault in broken[: MOST + 1]:
        faults.append(Fault(fault.rule, path, fault.reason, n=fault.index))
    faults += reader.drift(facts)
    return Looked(_bounded(faults, path), reader.count)


def _bounded(faults: list[Fault], path: str) -> list[Fault]:
    if len(faults) <= MOST:
        return faults
    return [*faults[:MOST], Fault("history", path, f"there is more; no more than {MOST} faults are shown")]


def _bad_lines(ask: Ask, session: Session, path: str) -> Iterator[Fault]:
    stream: Stream
    for stream in get_args(Stream):
        size = session.messages_size if stream == "messages" else session.events_size
        for found in walk(partial(read_stream, ask, session.id, stream), size):
            if found.fault is not None:
                yield Fault("line", f"{path}/{stream}.jsonl", found.fault, found.number, found.offset)


class _Reader:
    """Follows a log, entry by entry: where lines are, what is wrong with them, what they amount to."""

    def __init__(self, session: Session, path: str, told: Callable[[int], None]) -> None:
        self.faults: list[Fault] = []
        self.count = 0
        self._session = session
        self._path = path
        self._told = told
        self._at: dict[Stream, tuple[int, int]] = {"messages": (0, 0), "events": (0, 0)}
        self._derived = _empty(session)
        self._lines: list[Line] = []
        self._time = session.created_at

    def entries(self, rows: Iterator[Row]) -> Iterator[Entry]:
        """The entries, for their invariants."""
        for row in rows:
            self._look(row)
            yield entry_of(row)

    def _look(self, row: Row) -> None:
        lines, offset = self._at[row.stream]
        self._at[row.stream] = lines + 1, offset + len(row.raw) + 1
        fault = foreign_fault(row.raw) or (None if COUNT.holds(row.time) else "its time is none")
        if fault is not None and len(self.faults) <= MOST:
            self.faults.append(Fault("line", f"{self._path}/{row.stream}.jsonl", fault, lines + 1, offset, row.n))
        self.count += 1
        self._lines.append(foreign_line(row.stream, row.raw))
        self._time = row.time
        if len(self._lines) >= _BATCH:
            self._advance()

    def _advance(self) -> None:
        if self._lines:
            self._derived, _ = facts.advance(self._derived, self._lines, time_ms=self._time, now_ns=0, seq=0)
            self._lines = []
            self._told(sum(offset for _, offset in self._at.values()))

    def drift(self, names: Sequence[str]) -> Iterator[Fault]:
        """Files that do not say what the log says."""
        self._advance()
        for name in names:
            says, is_so = getattr(self._session, name), getattr(self._derived, name)
            if says != is_so:
                path = f"{self._path}/{_FILES.get(name, name)}"
                yield Fault("facts", path, f"{name} is {_shown(says)}, but the log says {_shown(is_so)}")


def _shown(value: object) -> object:
    """Values that may be long or private are not quoted."""
    return value if isinstance(value, int | None) else "something" if len(str(value)) > 64 else repr(value)


def _empty(session: Session) -> Session:
    """The session before its first entry."""
    return msgspec.structs.replace(
        session,
        n=0,
        messages_size=0,
        events_size=0,
        latest_n=None,
        latest_size=0,
        state=facts.INITIAL_STATE,
        cwd=facts.INITIAL_CWD,
        meta=facts.initial_meta(session.scope),
        updated_at=session.created_at,
    )
