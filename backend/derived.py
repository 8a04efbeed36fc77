"""The derived files of a session's ``context/`` (spec 1.7): their bytes are counted entry by entry, and never kept.

A *view* looks at each entry once, in order, and remembers where a few of them begin. So it knows a file's exact size
at once, and reads any part of it by making the entries around it again: bounded memory, whatever the log's length. What
it remembers can be dropped; another view that looks at the same log says the same, the times of change included.

Pure over rows: no clock, no disk. Times of change are made of the session's row and of the entries, and count every
change, so they strictly increase (spec 1.2), also where the clock was set back, and are the same after a restart. One
thread.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

import msgspec

from backend.entries import Entry
from backend.errors import StoreFailed
from backend.lines import entry_of
from backend.projection import Lines, Projection, Rows
from backend.requests import context_mark, prompt_header
from backend.rows import Row, Session
from backend.strict_json import compact
from backend.transcript import entry_text, title

File = Literal["messages.jsonl", "log.jsonl", "transcript.md", "request.json"]
FILES: tuple[File, ...] = get_args(File)

MOST_ROWS = 64
WANTED_BYTES = 256 << 10
_BLOCK = 16
_MOST_BLOCKS = 16
_PIECE = 64 << 10
_TAIL = b"]}\n"
_NS_PER_MS = 1_000_000
_OVERHEAD = 2048


def log_line(row: Row) -> bytes:
    """An entry as spec 2.1 writes it: compact JSON and a newline."""
    return _json(entry_of(row)) + b"\n"


def _json(entry: Entry) -> bytes:
    try:
        return compact(entry)
    except TypeError:
        # A lone surrogate needs the encoder that knows no structs.
        return compact(msgspec.to_builtins(entry))


class EntryView:
    """A file that has something for each entry: log.jsonl, transcript.md."""

    def __init__(self, rows: Rows, render: Callable[[Row], bytes], head: bytes) -> None:
        self._rows = rows
        self._render = render
        self._head = head
        self._starts = array("Q")
        self.size = len(head)
        self.changes = 0
        self.changed_ms = 0

    @property
    def memory(self) -> int:
        """Bytes that it takes."""
        return _OVERHEAD + len(self._starts) * self._starts.itemsize

    def take(self, row: Row) -> None:
        """Looks at the next entry."""
        if row.n % _BLOCK == 0:
            self._starts.append(self.size)
        text = self._render(row)
        if not text:
            return
        self.size += len(text)
        self.changes += 1
        if row.stream == "events":
            self.changed_ms = max(self.changed_ms, row.time)

    def read(self, offset: int, size: int) -> Iterator[bytes]:
        """Bytes of the file, in pieces; fewer only at the end."""
        end = min(offset + size, self.size)
        if offset < len(self._head):
            yield self._head[offset:end]
        starts = self._starts
        block, last = max(0, bisect_right(starts, offset) - 1), bisect_left(starts, end)
        while block < last:
            begin = starts[block]
            # Several blocks at once where they are short.
            after = max(block + 1, bisect_right(starts, begin + _PIECE, block, min(last, block + _MOST_BLOCKS)))
            text = b"".join(map(self._render, self._rows(block * _BLOCK, (after - block) * _BLOCK)))
            yield text[max(0, offset - begin) : end - begin]
            block = after


class SentView:
    """What the model is sent: messages.jsonl is that of now, request.json that of the last prompt mark."""

    def __init__(self, rows: Rows) -> None:
        self._projection = Projection(rows)
        self._context: int | None = None
        self.changes = 0
        self.changed_ms = 0
        self.request: RequestView | None = None
        self._rows = rows

    @property
    def size(self) -> int:
        return self._projection.size

    @property
    def memory(self) -> int:
        """Bytes that it takes."""
        return _OVERHEAD + self._projection.memory + (self.request.memory if self.request else 0)

    def take(self, row: Row) -> None:
        """Looks at the next entry."""
        if row.kind == "mark":
            self._take_mark(row)
        else:
            self.changes += 1
            if row.kind == "cut":
                self.changed_ms = max(self.changed_ms, row.time)
        self._projection.take(row)

    def _take_mark(self, row: Row) -> None:
        if context_mark(row) is not None:
            self._context = row.n
        elif (header := prompt_header(row)) is not None:
            head = compact({"context": self._context_data(), "header": header})
            self.request = RequestView(self.request, row, self._projection.lines(), head)

    def _context_data(self) -> Any:
        mark = None if self._context is None else context_mark(self._rows(self._context, 1)[0])
        return None if mark is None else mark.data

    def lines(self) -> Lines:
        """What is sent at this moment."""
        return self._projection.lines()

    def read(self, offset: int, size: int) -> Iterator[bytes]:
        """Bytes that the file has when the first is asked for, in pieces, fewer only at the end."""
        lines = self.lines()
        end = min(offset + size, lines.size)
        for at in range(offset, end, _PIECE):
            yield lines.read(at, min(_PIECE, end - at))


class RequestView:
    """The request of one prompt mark (spec 2.6) as one JSON object and a newline; ``before`` is that of the last."""

    def __init__(self, before: "RequestView | None", prompt: Row, messages: Lines, head: bytes) -> None:
        self._messages = messages
        self._head = head[:-1] + b',"messages":['
        self.size = len(self._head) + max(0, messages.size - 1) + len(_TAIL)
        self.changes: int = before.changes + 1 if before else 1
        self.changed_ms: int = max(prompt.time, before.changed_ms if before else 0)
        self.memory = len(self._head) + messages.memory

    def read(self, offset: int, size: int) -> Iterator[bytes]:
        """Bytes of the file, in pieces; fewer only at the end."""
        end = min(offset + size, self.size)
        start, stop = len(self._head), self.size - len(_TAIL)
        yield self._head[offset:end]
        last = min(end, stop)
        for at in range(max(offset, start), last, _PIECE):
            # No line of JSON holds a line break: each ends one message, and that of the last message is left out.
            yield self._messages.read(at - start, min(_PIECE, last - at)).replace(b"\n", b",")
        yield _TAIL[max(0, offset - stop) : max(0, end - stop)]


View = EntryView | SentView | RequestView


class Derived:
    """The derived files of one session. ``Rows`` raises what reading may raise; then nothing was looked at.

    A file is to be told apart from what was not looked at yet: ask ``is_behind`` and ``advance`` first.
    """

    def __init__(self, rows: Rows, name: str) -> None:
        self._rows = rows
        self._name = name
        self._views: dict[File, EntryView | SentView] = {}
        self._seen: dict[File, int] = {}
        self._limit = _BLOCK

    @property
    def memory(self) -> int:
        """Bytes that it takes."""
        return sum(view.memory for view in self._views.values())

    def knows(self, file: File) -> bool:
        """Whether some of the entries were looked at for this file."""
        return _source(file) in self._views

    def is_behind(self, file: File, length: int) -> bool:
        """Whether there are entries below ``length`` that were not looked at for this file."""
        return self._seen.get(_source(file), -1) != length

    def advance(self, file: File, length: int) -> None:
        """Looks at some of the entries below ``length``: what takes no time worth mentioning."""
        source = _source(file)
        if source not in self._views or self._seen[source] > length:
            self._views[source], self._seen[source] = self._new(source), 0
        view, start, taken = self._views[source], self._seen[source], 0
        for row in self._rows(start, min(self._limit, length - start)) if start < length else ():
            view.take(row)
            self._seen[source] = row.n + 1
            taken += len(row.raw) + 1
        if not taken and start < length:
            raise StoreFailed(f"the log ends before entry {length}")
        # Lines may be long: as many at once as were short enough last time.
        self._limit = min(MOST_ROWS, 2 * self._limit) if taken < WANTED_BYTES else max(1, self._limit // 8)

    def _new(self, source: File) -> EntryView | SentView:
        match source:
            case "log.jsonl":
                return EntryView(self._rows, log_line, b"")
            case "transcript.md":
                return EntryView(self._rows, lambda row: entry_text(entry_of(row)), title(self._name))
        return SentView(self._rows)

    def view(self, file: File) -> View | None:
        """The file as far as was looked at, None where there is none (request.json without a prompt)."""
        view = self._views[_source(file)]
        return view.request if isinstance(view, SentView) and file == "request.json" else view


def _source(file: File) -> File:
    """The file with whose view another is made."""
    return "messages.jsonl" if file == "request.json" else file


def mtime(file: File, view: View, session: Session) -> int:
    """In ns: when its content last changed, and one for each change there ever was."""
    events = session.events_mtime
    if file != "log.jsonl":
        # Not every event changes it; the clock of an entry may be anything.
        events = min(view.changed_ms * _NS_PER_MS, events)
    messages = session.messages_mtime if file != "request.json" else 0
    return max(session.created_mtime, messages, events) + view.changes
