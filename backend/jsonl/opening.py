"""Opening a session's directory: what counts of its files, what a died request left, what cannot be proven.

A session is *ours* once it has an order.jsonl, *foreign* before. The rules, in this sequence:

1. Ours, and the files have the sizes and mtimes of the journal's record: settled, nothing is read.
2. Ours, and the files lie between the record's old and new sizes without its commit (order.jsonl is written last):
   a request whose process died. It is cut back.
3. Ours, and the machine died with the store open: unsynced writes are lost in any order, sizes may be there without
   contents. All beyond the last whole request goes, down to what is known to be on disk, and is kept beside the log
   as ``.store/cut-<stream>-<offset>``.
4. Everything else is looked at line by line. What does not agree is a *fault*: it is served as it is, and never
   repaired (spec 1.5).
"""

import os
from collections.abc import Iterator
from functools import partial
from itertools import chain, takewhile
from typing import NamedTuple

import msgspec

from backend.entries import FORMAT_VERSION
from backend.foreign_files import Found, walk
from backend.jsonl.disk import create, exists, open_regular, read_range, regular
from backend.jsonl.foreign import with_files, with_values
from backend.jsonl.handles import JOURNAL, LOGS, ORDER, STORE, Handles
from backend.jsonl.journal import Record, Sizes, read_record, write_record
from backend.jsonl.opened import Death
from backend.jsonl.order import (
    WIDTH,
    Base,
    FileOrder,
    MemoryOrder,
    Order,
    OrderHeader,
    OrderLine,
    decode_line,
    each,
    read_header,
)
from backend.jsonl.scan import Facts
from backend.lines import foreign_fault
from backend.rows import Session, Stream

_NOTHING = Sizes(0, 0, 0)
_IDENTITY = ("id", "owner", "name", "uid", "session_id", "scope", "archive")


class Opened(NamedTuple):
    """``header`` is None for a foreign session; ``floor`` is what is known to be on disk.

    ``settled``: ``row`` is as the last request left it, the mtimes its small files should have included.

    ``order`` reads from the handles the session was opened with.
    """

    row: Session
    order: Order
    header: OrderHeader | None
    floor: Sizes
    settled: bool = False


class _Fault(Exception):
    """What cannot be proven, in words."""


def open_session(directory: str, blank: Session, handles: Handles, death: Death) -> Opened:
    """Opens the session in ``directory``; ``blank`` is its row as the catalogue knows it, without an entry."""
    record = read_record(handles.journal) if handles.journal >= 0 else None
    if record or _size(handles.order):
        return _Ours(directory, blank, handles, record).open(death)
    return _foreign(directory, with_files(directory, blank), handles)


def recorded_row(directory: str, blank: Session) -> Session | None:
    """The row of a session of ours by its journal alone, None unless its files have the sizes that it says.

    Enough to put the session in order; whether its history is sound takes ``open_session``.
    """
    found = [regular(f"{directory}/{name}") for name in ("messages.jsonl", "events.jsonl", ORDER)]
    try:
        journal = open_regular(f"{directory}/{JOURNAL}", os.O_RDONLY)
    except OSError:
        return None
    try:
        record = read_record(journal)
    finally:
        os.close(journal)
    if record is None or record.new != Sizes(*(stat.st_size if stat else 0 for stat in found)):
        return None
    return _identified(record.after, blank)


def _identified(row: Session, blank: Session) -> Session:
    """A recorded row with what the catalogue says of the session."""
    return msgspec.structs.replace(row, **{name: getattr(blank, name) for name in _IDENTITY})


def sizes_of(handles: Handles) -> Sizes:
    """The sizes of the three files."""
    return Sizes(_size(handles.messages), _size(handles.events), _size(handles.order))


def _size(descriptor: int) -> int:
    return os.fstat(descriptor).st_size if descriptor >= 0 else 0


def _obstacle(directory: str, handles: Handles) -> str | None:
    """Why a directory cannot hold a provable history, whatever is in its files."""
    if exists(f"{directory}/{STORE}/manifest.json"):
        return f"{STORE}/manifest.json: the history is kept in another format, messages.jsonl is only a marker"
    for stream in LOGS:
        if handles.stream(stream) < 0 and exists(f"{directory}/{stream}.jsonl"):
            return f"{stream}.jsonl: it is not a regular file that can be read"
    if not handles.has_store and exists(f"{directory}/{STORE}"):
        return f"{STORE}: it is not a directory"
    if handles.order < 0 and exists(f"{directory}/{ORDER}"):
        return f"{ORDER}: it is not a regular file that can be read"
    return None


def _foreign(directory: str, blank: Session, handles: Handles) -> Opened:
    """All messages, then all events, at the time of updated_at (spec 2.9)."""
    row = with_values(directory, blank)
    base = Base(0, row.state, row.cwd, row.cwd_seq, row.meta, row.updated_at)
    order, facts, faults = MemoryOrder(), Facts(blank, base), []
    for stream, found in chain.from_iterable(_walk(handles, stream) for stream in LOGS):
        if found.fault:
            faults.append(found.report(stream))
        else:
            facts.add(order.add(stream, row.updated_at, found.offset, found.length, blank.seq), found.raw)
    if obstacle := _obstacle(directory, handles):
        faults.insert(0, obstacle)
    row = _with_facts(row, facts.row(), blank.seq, _in_words(faults))
    return Opened(row, order, None, _NOTHING)


def _walk(handles: Handles, stream: Stream) -> Iterator[tuple[Stream, Found]]:
    descriptor = handles.stream(stream)
    return ((stream, found) for found in walk(partial(read_range, descriptor), _size(descriptor)))


def _in_words(faults: list[str]) -> str | None:
    if len(faults) < 2:
        return faults[0] if faults else None
    return f"{faults[0]} (and {len(faults) - 1} more)"


def _with_facts(row: Session, derived: Session, seq: int, fault: str | None) -> Session:
    """``row``, which has the files' sizes and mtimes, with what the log says."""
    names = ("n", "latest_n", "latest_size", "state", "cwd", "cwd_seq", "meta", "updated_at")
    return msgspec.structs.replace(row, **{name: getattr(derived, name) for name in names}, seq=seq, fault=fault)


class _Ours:
    """Opens a session that has an order.jsonl."""

    def __init__(self, directory: str, blank: Session, handles: Handles, record: Record | None) -> None:
        self._directory = directory
        self._handles = handles
        self._blank = blank
        self._header_size = 0
        self._record = record

    def open(self, death: Death) -> Opened:
        if self._handles.order < 0:
            return self._unproven(None, f"{ORDER}: it is missing")
        try:
            header, self._header_size = read_header(self._handles.order)
        except ValueError as error:
            return self._unproven(None, f"{ORDER} line 1: {error}")
        if obstacle := _obstacle(self._directory, self._handles):
            return self._unproven(header, obstacle)
        if header.format_version != FORMAT_VERSION:
            return self._unproven(header, f"{ORDER} line 1: format version {header.format_version} is not known")
        if death == "machine":
            return self._after_power_cut(header)
        return self._settled(header) or self._examined(header, self._after_death(sizes_of(self._handles)))

    def _settled(self, header: OrderHeader) -> Opened | None:
        """The session as the journal has it, if that is how the files are."""
        record, handles = self._record, self._handles
        if record is None or min(handles.messages, handles.events) < 0 or sizes_of(handles) != record.new:
            return None
        row = record.after
        mtimes = (os.fstat(handles.messages).st_mtime_ns, os.fstat(handles.events).st_mtime_ns)
        if mtimes != (row.messages_mtime, row.events_mtime):
            return None
        row = _identified(row, self._blank)
        return Opened(row, self._file_order(record.new), header, record.floor, settled=True)

    def _examined(self, header: OrderHeader, sizes: Sizes) -> Opened:
        """The session as its log has it, once that is found to be sound."""
        self._blank = _headed(with_files(self._directory, self._blank), header)
        order, facts = self._file_order(sizes), Facts(self._blank, header.base)
        try:
            self._compare(order, sizes, facts)
        except (_Fault, ValueError) as fault:
            return self._unproven(header, str(fault))
        last = order.lines(len(order) - 1, len(order)) if len(order) else []
        row = _with_facts(self._blank, facts.row(), last[0].seq if last else header.seq, None)
        floor = self._record.floor if self._record else _NOTHING
        self._settle(row, floor)
        return Opened(row, order, header, floor)

    def _settle(self, row: Session, floor: Sizes) -> None:
        if self._record is None and not row.n:
            return
        try:
            write_settled(self._handles, row, floor)
        except OSError:
            # Without a record before, this one only spares the next opening a look at the log.
            if self._record is not None:
                raise

    def _file_order(self, sizes: Sizes) -> FileOrder:
        length = (sizes.order - self._header_size) // WIDTH
        return FileOrder(lambda: self._handles.order, self._header_size, length)

    def _after_death(self, sizes: Sizes) -> Sizes:
        """The sizes once what a request left whose process died is cut back."""
        record = self._record
        if record and sizes.order < record.new.order and sizes.within(record.old, record.new):
            return self._cut(sizes, record.old)
        return sizes

    def _after_power_cut(self, header: OrderHeader) -> Opened:
        """The session with what is there as whole requests; what more there is was never said to be on disk."""
        sizes = sizes_of(self._handles)
        floor = self._record.floor if self._record else _NOTHING
        if self._record and floor == self._record.new == sizes:
            return self._settled(header) or self._examined(header, sizes)
        if min(self._handles.messages, self._handles.events) >= 0 and floor.within(_NOTHING, sizes):
            whole = self._whole_requests(floor, sizes)
            self._keep(sizes, whole)
            sizes = self._cut(sizes, whole)
        return self._examined(header, sizes)

    def _whole_requests(self, floor: Sizes, sizes: Sizes) -> Sizes:
        """The sizes after the last request from ``floor`` on that is there as a whole."""
        kept = Sizes(floor.messages, floor.events, max(floor.order, self._header_size))
        ends = {"messages": floor.messages, "events": floor.events}
        for n in range((kept.order - self._header_size) // WIDTH, (sizes.order - self._header_size) // WIDTH):
            line = self._line(n)
            if line is None or line.offset != ends[line.stream] or not self._is_there(line):
                break
            ends[line.stream] = line.end
            if not line.more:
                kept = Sizes(ends["messages"], ends["events"], self._header_size + (n + 1) * WIDTH)
        return kept

    def _line(self, n: int) -> OrderLine | None:
        try:
            return decode_line(read_range(self._handles.order, self._header_size + n * WIDTH, WIDTH), n)
        except ValueError:
            return None

    def _is_there(self, line: OrderLine) -> bool:
        raw = read_range(self._handles.stream(line.stream), line.offset, line.length + 1)
        return raw.find(b"\n") == line.length and not foreign_fault(raw[:-1])

    def _keep(self, sizes: Sizes, whole: Sizes) -> None:
        """Keeps what is about to be cut beside the log."""
        for stream in LOGS:
            start, end = getattr(whole, stream), getattr(sizes, stream)
            if end > start:
                lost = read_range(self._handles.stream(stream), start, end - start)
                create(f"{self._directory}/{STORE}/cut-{stream}-{start}", lost)

    def _cut(self, sizes: Sizes, to: Sizes) -> Sizes:
        for name in ("messages", "events", "order"):
            if getattr(sizes, name) != getattr(to, name):
                os.ftruncate(getattr(self._handles, name), getattr(to, name))
        return to

    def _compare(self, order: FileOrder, sizes: Sizes, facts: Facts) -> None:
        """Raises where the log files are not line by line what order.jsonl says."""
        walks = {
            stream: walk(partial(read_range, self._handles.stream(stream)), getattr(sizes, stream)) for stream in LOGS
        }
        more = 0
        for line in each(order):
            found = next(walks[line.stream], None)
            if found is None:
                raise _Fault(f"{line.stream}.jsonl: it ends before entry {line.n}, byte {line.offset} (see {ORDER})")
            if found.fault:
                raise _Fault(found.report(line.stream))
            if (found.offset, found.length) != (line.offset, line.length):
                raise _Fault(found.report(line.stream, f"it is not what {ORDER} has for entry {line.n}"))
            facts.add(line, found.raw)
            more = line.more
        for stream in LOGS:
            for found in walks[stream]:
                raise _Fault(found.report(stream, found.fault or f"{ORDER} has no entry for it"))
        if more or (sizes.order - self._header_size) % WIDTH:
            raise _Fault(f"{ORDER}: it ends within a request")

    def _unproven(self, header: OrderHeader | None, fault: str) -> Opened:
        """A session as it is, for readers: the whole lines that order.jsonl knows, then those it does not."""
        self._blank = with_files(self._directory, self._blank)
        if header:
            self._blank = _headed(self._blank, header)
        known = self._known()
        found = [
            (known.get((stream, line.offset, line.length)), stream, line)
            for stream, line in chain.from_iterable(_walk(self._handles, stream) for stream in LOGS)
            if not line.fault
        ]
        found.sort(key=lambda item: item[0].n if item[0] else len(known))
        order, facts = MemoryOrder(), Facts(self._blank, header.base if header else None)
        for line, stream, at in found:
            time, seq = (line.time, line.seq) if line else (self._blank.updated_at, self._blank.seq)
            facts.add(order.add(stream, time, at.offset, at.length, seq), at.raw)
        derived = facts.row()
        row = _with_facts(self._blank, derived, derived.seq, fault)
        return Opened(row, order, header, _NOTHING)

    def _known(self) -> dict[tuple[Stream, int, int], OrderLine]:
        """The lines of order.jsonl up to the first that is none."""
        numbers = range(len(self._file_order(sizes_of(self._handles)))) if self._header_size else ()
        lines = takewhile(lambda line: line is not None, map(self._line, numbers))
        return {(line.stream, line.offset, line.length): line for line in lines if line}


def write_settled(handles: Handles, row: Session, floor: Sizes) -> None:
    """Records that no request is under way and what the session is, so that it opens without a look at its log."""
    sizes = sizes_of(handles)
    write_record(handles.writable_journal(), Record(sizes, sizes, floor, row))


def _headed(row: Session, header: OrderHeader) -> Session:
    return msgspec.structs.replace(
        row,
        parent=header.parent,
        at=header.at,
        created_at=header.created_at,
        updated_at=header.created_at,
        seq=header.seq,
    )
