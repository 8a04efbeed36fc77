"""One session's log on disk: reading it, and appending requests to it, all or nothing (spec 2.9).

A request is written in this sequence: journal, messages.jsonl, events.jsonl, order.jsonl (the commit), mtimes, small
files. A failure before the commit cuts the files back; what a killed process leaves is cut back when the session is
opened next (``backend.jsonl.opening``). The store's thread only.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from backend import facts
from backend.entries import FORMAT_VERSION, SessionHeader
from backend.errors import UnprovableHistory
from backend.jsonl.clock import Clock
from backend.jsonl.disk import (
    create,
    failure,
    fsync,
    is_directory,
    make_directory,
    read_range,
    regular,
    reported,
    write_range,
)
from backend.jsonl.durability import Durability
from backend.jsonl.handles import JOURNAL, LOGS, ORDER, STORE, HandleCache, Handles
from backend.jsonl.journal import Record, Sizes, write_record
from backend.jsonl.opened import Death
from backend.jsonl.opening import open_session, sizes_of, write_settled
from backend.jsonl.order import (
    Base,
    FileOrder,
    Order,
    OrderHeader,
    OrderLine,
    each,
    encode_header,
    encode_line,
    order_of,
    plain_header,
    stored_header,
)
from backend.jsonl.views import doubted_views, renew_views, settled_views
from backend.lines import foreign_line, text_of
from backend.rows import Kind, Line, Row, Session, Stream
from backend.run_lines import RunIndex

_TURN = 64
_TURN_BYTES = 256 << 10


class Workshop(msgspec.Struct, frozen=True):
    """What the logs of a store share."""

    cache: HandleCache
    durability: Durability
    clock: Clock
    death: Death


class SessionLog:
    """The log in ``directory``. ``row`` is what the store shows of the session."""

    def __init__(self, directory: str, blank: Session, shared: Workshop) -> None:
        """Opens it (``OSError``); ``blank`` is the row of the session without an entry."""
        self.directory = directory
        self._shared = shared
        opened = open_session(directory, blank, shared.cache.of(directory), shared.death)
        self.row = opened.row
        self._header = opened.header
        self._floor = opened.floor
        self._epoch = shared.durability.epoch
        self._written = False
        self._inodes = _inodes(self._handles())
        order = opened.order
        self._order: Order = order.through(self._order_file) if isinstance(order, FileOrder) else order
        self._runs = RunIndex()
        self._indexed = 0
        if self._header and not self.row.fault and self.row.archive is None:
            row = self.row if opened.settled else doubted_views(self.row)
            self.row = settled_views(directory, row, self.latest, shared.clock.tick)

    @property
    def header(self) -> SessionHeader:
        """The header; that of a foreign session is what the catalogue and its files say."""
        if self._header is None:
            row = self.row
            return SessionHeader(
                session_id=row.session_id,
                format_version=FORMAT_VERSION,
                created_at=row.created_at,
                delegation_depth=0,
            )
        return msgspec.structs.replace(plain_header(self._header), session_id=self.row.session_id)

    def read(self, stream: Stream, offset: int, size: int) -> bytes:
        """Bytes of a log file; short only at its end."""
        end = facts.stream_size(self.row, stream)
        descriptor = self._handles().stream(stream)
        if descriptor < 0 or offset >= end:
            return b""
        return read_range(descriptor, offset, min(size, end - offset))

    def order(self, start: int, stop: int) -> Sequence[OrderLine]:
        """Where entries lie; ``UnprovableHistory`` if the order changed behind our back."""
        try:
            return self._order.lines(start, stop)
        except ValueError as error:
            raise UnprovableHistory(f"{ORDER}: {error}") from None

    def rows(self, start: int, stop: int) -> Sequence[Row]:
        """Entries as stored."""
        return [self._row(line) for line in self.order(start, stop)]

    def runs(self) -> RunIndex:
        """What the log says of runs: read once, when it is first asked for, and brought up to date by each append."""
        while self.index_runs():
            pass
        return self._runs

    def index_runs(self) -> bool:
        """Looks at some entries for that: what takes no time worth mentioning. Whether there are more."""
        size = 0
        for line in self.order(self._indexed, min(self._indexed + _TURN, self.row.n)):
            row = self._row(line)
            self._runs.extend([foreign_line(row.stream, row.raw)], row.n)
            self._indexed = row.n + 1
            size += len(row.raw)
            if size > _TURN_BYTES:
                break
        return self._indexed < self.row.n

    def latest(self) -> bytes:
        """The content of latest.md as the log has it."""
        if self.row.latest_n is None:
            return b""
        [row] = self.rows(self.row.latest_n, self.row.latest_n + 1)
        return _latest(row.raw)

    def append(self, lines: Sequence[Line], times: Sequence[int], seq: int, now_ns: int) -> frozenset[str]:
        """Appends a request; the names of the files that changed. Raises a ``CtxError`` and has changed nothing."""
        with reported():
            self._complete()
            order = self._own_order()
            self._must_be_untouched()
        row, files = facts.advance(self.row, lines, time_ms=times[-1], now_ns=now_ns, seq=seq)
        entries = b"".join(map(encode_line, order_of(lines, times, self.row, seq)))
        latest = self._next_latest(row, lines)
        try:
            self._write(lines, entries, row)
        except OSError as error:
            self._take_back(order)
            raise failure(error) from error
        if self._indexed == self.row.n:
            self._runs.extend(lines, self.row.n)
            self._indexed += len(lines)
        self._commit(row, order, files, len(lines))
        # The request stands; what fails from here on is made good when the session is opened next.
        with suppress(OSError):
            self._stamp()
            renew_views(self.directory, row, files, latest)
        return files

    def files(self) -> tuple[str, ...]:
        """What is not to be made again from something else."""
        return tuple(f"{self.directory}/{name}" for name in ("messages.jsonl", "events.jsonl", ORDER, JOURNAL))

    def settle(self) -> None:
        """After the last sync: records that all is on disk (``OSError``)."""
        if not self._written or self.row.fault:
            return
        self._floor = sizes_of(self._handles())
        write_settled(self._handles(), self.row, self._floor)
        self._shared.durability.add((f"{self.directory}/{JOURNAL}",))

    def moved(self, directory: str, row: Session) -> None:
        """The session's directory has been renamed, and ``row`` says where it is now."""
        self._shared.cache.forget(self.directory)
        self.directory = directory
        self.row = row

    def branch_header(self, header: SessionHeader, seq: int) -> OrderHeader:
        """The stored header of a branch at ``header.at``; it keeps what the files of a foreign session said."""
        base = self._header.base if self._header else self._base()
        if base is None or header.at is None or header.at < base.entries:
            return stored_header(header, seq)
        return stored_header(header, seq, msgspec.structs.replace(base, cwd_seq=seq if base.cwd_seq else 0))

    def _handles(self) -> Handles:
        return self._shared.cache.of(self.directory)

    def _order_file(self) -> int:
        return self._handles().order

    def _row(self, line: OrderLine) -> Row:
        raw = read_range(self._handles().stream(line.stream), line.offset, line.length)
        return Row(line.n, line.time, _kind(line.stream, raw), line.stream, raw)

    def _base(self) -> Base:
        row = self.row
        return Base(row.n, row.state, row.cwd, row.cwd_seq, row.meta, row.updated_at)

    def _next_latest(self, after: Session, lines: Sequence[Line]) -> bytes:
        """latest.md after a request, if that changes it."""
        if after.latest_n is None or after.latest_n < self.row.n:
            return b""
        return _latest(lines[after.latest_n - self.row.n].raw)

    def _own_order(self) -> FileOrder:
        """The order to be extended; a foreign session gets its order.jsonl."""
        if isinstance(self._order, FileOrder):
            return self._order
        store = f"{self.directory}/{STORE}"
        if not is_directory(store):
            make_directory(store)
        self._header = stored_header(self.header, self.row.seq, self._base())
        write_order(self.directory, self._header, each(self._order))
        # From here on only this file says what of the history is not ours, so it waits for the disk, once.
        for made in (f"{self.directory}/{ORDER}", store, self.directory):
            fsync(made)
        self._shared.cache.forget(self.directory)
        self._order = FileOrder(self._order_file, len(encode_header(self._header)), self.row.n)
        return self._order

    def _complete(self) -> None:
        """Makes the log files that are missing because nothing was in them."""
        for stream, size in (("messages", self.row.messages_size), ("events", self.row.events_size)):
            if not size and regular(f"{self.directory}/{stream}.jsonl") is None:
                path = f"{self.directory}/{stream}.jsonl"
                create(path, b"", self.row.created_mtime)
                self._shared.cache.forget(self.directory)
                self._shared.durability.add((path, self.directory))

    def _must_be_untouched(self) -> None:
        """A file that is not the one we know, or not as long as we left it, is a fault from now on."""
        for stream, size in (("messages", self.row.messages_size), ("events", self.row.events_size)):
            found = regular(f"{self.directory}/{stream}.jsonl")
            known = found and self._inodes.setdefault(stream, (found.st_dev, found.st_ino))
            if found is None or (found.st_dev, found.st_ino) != known or found.st_size != size:
                fault = f"{stream}.jsonl: another process changed it (it had {size} bytes)"
                self.row = msgspec.structs.replace(self.row, fault=fault)
                raise UnprovableHistory(f"history cannot be proven, nothing was appended: {fault}")

    def _write(self, lines: Sequence[Line], entries: bytes, after: Session) -> None:
        """Journal, log files, order: the last is the commit."""
        handles = self._handles()
        old = Sizes(self.row.messages_size, self.row.events_size, os.fstat(handles.order).st_size)
        new = Sizes(after.messages_size, after.events_size, old.order + len(entries))
        if self._written and self._shared.durability.covers(self._epoch):
            self._floor = old
        write_record(handles.writable_journal(), Record(old, new, self._floor, after))
        if not self._written:
            # The journal has to be on disk once: an old record proves less than the last one, but proves. The others,
            # as a process that died may have left them unsynced.
            self._shared.durability.add((f"{self.directory}/{STORE}", *self.files()))
            self._written = True
        for descriptor, stream, end in (
            (handles.messages, "messages", old.messages),
            (handles.events, "events", old.events),
        ):
            content = b"".join(line.raw + b"\n" for line in lines if line.stream == stream)
            write_range(descriptor, content, end)
        write_range(handles.order, entries, old.order)

    def _take_back(self, order: FileOrder) -> None:
        """After a failed write: the files as they were, and a journal that claims nothing."""
        handles = self._handles()
        try:
            os.ftruncate(handles.messages, self.row.messages_size)
            os.ftruncate(handles.events, self.row.events_size)
            os.ftruncate(handles.order, order.size)
        except OSError as error:
            fault = f"a failed append could not be taken back ({error.strerror}): mount again"
            self.row = msgspec.structs.replace(self.row, fault=fault)
            return
        # The next append, or the end, writes the journal anew.
        with suppress(OSError):
            self._stamp()
            write_settled(handles, self.row, self._floor)

    def _commit(self, row: Session, order: FileOrder, files: frozenset[str], count: int) -> None:
        self.row = row
        order.extend(count)
        written = (f"{stream}.jsonl" for stream in LOGS if f"{stream}.jsonl" in files)
        self._shared.durability.add(f"{self.directory}/{name}" for name in (*written, ORDER))
        self._epoch = self._shared.durability.epoch

    def _stamp(self) -> None:
        handles, row = self._handles(), self.row
        os.utime(handles.messages, ns=(row.messages_mtime, row.messages_mtime))
        os.utime(handles.events, ns=(row.events_mtime, row.events_mtime))


def write_order(directory: str, header: OrderHeader, lines: Iterable[OrderLine]) -> None:
    """Writes a whole order.jsonl, in one step for readers (``OSError``)."""
    path, staged = f"{directory}/{ORDER}", f"{directory}/{STORE}/.new-order.jsonl"
    create(staged)
    with open(staged, "r+b") as file:
        file.write(encode_header(header))
        file.writelines(map(encode_line, lines))
    os.rename(staged, path)


def _inodes(handles: Handles) -> dict[str, tuple[int, int]]:
    """Which files the log files are, those that are there."""
    found = {stream: os.fstat(handles.stream(stream)) for stream in LOGS if handles.stream(stream) >= 0}
    return {stream: (stat.st_dev, stat.st_ino) for stream, stat in found.items()}


def _latest(raw: bytes) -> bytes:
    return f"{text_of(raw)}\n".encode()


def _kind(stream: Stream, raw: bytes) -> Kind:
    """The kind of a stored line; parsed only where it could be a cut."""
    if stream == "messages":
        return "message"
    return foreign_line(stream, raw).kind if b"cut" in raw or b"\\u" in raw else "mark"
