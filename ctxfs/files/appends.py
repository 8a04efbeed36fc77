"""Writing messages.jsonl and events.jsonl: whole valid lines at the end, and nothing else (spec 1.4, Log files).

A request is validated whole, then appended whole. What has no newline yet is held back by its handle. Replacing a
log by content that begins with all it has is an append of the rest.

Many lines are judged in turns with other requests, and then stored in one transaction, which nothing can share: what
the FUSE thread read or wrote meanwhile would be a part of it. Others wait for that (docs/performance.md).
"""

import errno
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pyfuse3 import FUSEError

from backend.errors import InvalidValue, SessionConflictError, UnprovableHistory
from backend.facts import stream_size
from backend.line_prefix import LinePrefix
from backend.lines import parse_line
from backend.rows import Append, Appended, Line, Session, Stream
from backend.store import FileStore
from ctxfs.files.handles import Opening, Writer
from ctxfs.inodes import Kind, Node
from ctxfs.loop import Future
from ctxfs.privacy import check_creator

if TYPE_CHECKING:
    from ctxfs.core import Core

log = logging.getLogger("ctxfs")

STREAMS: dict[Kind, Stream] = {Kind.MESSAGES: "messages", Kind.EVENTS: "events"}
_COMPARE = 1 << 20
_TURN = 256
_SMALL = 8 << 10
"""So many bytes are parsed without a turn for others: they hold no more lines than one."""


def writable_session(core: "Core", number: int) -> Session:
    """The session, if it can be appended to: ``EROFS`` once archived, ``EIO`` for unprovable history."""
    session = core.subjects.session(number).session
    if session.archive is not None:
        raise FUSEError(errno.EROFS)
    if session.fault is not None:
        raise UnprovableHistory(f"session {session.name!r}: {session.fault}")
    return session


def append_lines(
    core: "Core", session: Session, lines: list[Line], *, expected_n: int | None = None
) -> Awaitable[Appended]:
    """The one write path: validated lines into the log, in one transaction with all that derives from them."""
    return core.commits.append(Append(session.id, lines, expected_n))


def check_cuts(core: "Core", session: Session, lines: list[Line], uid: int) -> None:
    """A cut compacts, which is for the session's creator and uid 0 (spec 1.8)."""
    if lines and lines[0].stream == "events" and any(line.kind == "cut" for line in lines):
        check_creator(core.subjects.session(session.id).access, uid)


class LogWriter(Writer):
    """A handle on a log file that is open for writing."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._session = self.node.id
        self._stream = STREAMS[self.node.kind]
        self._append = opening.appends
        self._scope = writable_session(self.core, self._session).scope
        self._rest: LinePrefix | None = None
        self._next: int | None = None
        self._replacement: Replacement | None = None
        self._flushing: Future[None] | None = None
        self.core.commits.writers += 1
        self.core.contexts.writers[self._session] += 1

    async def write(self, offset: int, data: bytes) -> int:
        """All of a request or nothing of it; refused, it takes the unfinished rest along."""
        try:
            session = writable_session(self.core, self._session)
            if self._replacement is not None:
                self.hold(self._replacement.write(None if self._append else offset, data))
            elif self._append or offset in (self._next, stream_size(session, self._stream)):
                if self._rest is None and len(data) <= _SMALL and data.endswith(b"\n"):
                    lines = parse_lines(self._stream, data, self._scope)
                else:
                    lines = await self._finished(data)
                if lines:
                    check_cuts(self.core, session, lines, self.uid)
                    await append_lines(self.core, session, lines)
                    self.stored()
                self._next = offset + len(data)
            else:
                raise FUSEError(errno.EPERM)
        except Exception:
            self._rest = None
            if self._replacement is not None:
                self._replacement.refuse()
            self.hold(0)
            raise
        return len(data)

    async def _finished(self, data: bytes) -> list[Line]:
        """The lines that ``data`` ends; what follows the last of them is held back."""
        end, rest = data.rfind(b"\n") + 1, self._rest
        whole = rest.raw + data[:end] if end and rest is not None else data[:end]
        lines = await parse_in_turns(self.core, self._stream, whole, self._scope) if whole else []
        if end < len(data):
            if end or rest is None:
                rest = LinePrefix(self._stream, scope=self._scope)
            rest.feed(data[end:])
        elif end:
            rest = None
        self.hold(0 if rest is None else len(rest))
        self._rest = rest
        return lines

    def truncate_at_open(self) -> None:
        if stream_size(writable_session(self.core, self._session), self._stream):
            raise FUSEError(errno.EPERM)

    def truncate(self, size: int) -> None:
        """To nothing, in order to write the content anew (vim); the file keeps what it has until then."""
        session = writable_session(self.core, self._session)
        current = stream_size(session, self._stream)
        if size not in (0, current):
            raise FUSEError(errno.EPERM)
        if size != current:
            self._rest = None
            self._replacement = Replacement(self.core.store, session, self._stream)

    async def flush(self) -> None:
        while self._flushing is not None:
            await self._flushing
        if self._replacement is not None and self._replacement.written:
            await self._replace(self._replacement)
        await self.synced()
        if self._rest is not None:
            raise InvalidValue("the last line has no newline: not stored")

    async def _replace(self, replacement: "Replacement") -> None:
        """Appends what goes beyond the log. What is written meanwhile is an append after it; closes wait for it."""
        self._replacement, self._next = None, replacement.position
        self._flushing = self.core.commits.signal()
        try:
            await append_content(self.core, self._session, self._stream, self.uid, replacement.tail)
            self.stored()
        except Exception:
            self._replacement = replacement
            raise
        finally:
            flushing, self._flushing = self._flushing, None
            flushing.set(None)
        self.hold(0 if self._rest is None else len(self._rest))

    def release(self) -> None:
        self.core.commits.writers -= 1
        self.core.contexts.writers -= Counter({self._session: 1})
        if self._rest is not None:
            self.core.statistics.dropped_rests += 1
            log.info("dropped an unfinished line of %d bytes of session %d", len(self._rest), self._session)
        super().release()


class Replacement:
    """Content written from offset 0 to a log that keeps what it has: only what goes beyond that is held.

    What differs from the history, or is not written in order, is refused at ``fsync`` or ``close`` (``EPERM``).
    """

    def __init__(self, store: FileStore, session: Session, stream: Stream) -> None:
        self._store = store
        self._session = session.id
        self._stream = stream
        self._base = stream_size(session, stream)
        self.position = 0
        self._tail = bytearray()
        self._refused = False
        self.written = False

    def write(self, offset: int | None, data: bytes) -> int:
        """Takes the next bytes in (``offset`` None: wherever the last ended); returns how many are held."""
        self.written = True
        known = data[: max(0, self._base - self.position)]
        in_order = offset in (None, self.position)
        if not in_order or known != self._history(self.position, len(known)):
            self.refuse()
        self.position += len(data)
        if not self._refused:
            self._tail += data[len(known) :]
        return len(self._tail)

    def refuse(self) -> None:
        """Something of the content is wrong or missing: none of it counts."""
        self._refused = True
        self._tail.clear()

    def _history(self, offset: int, size: int) -> bytes:
        return self._store.read_stream(self._session, self._stream, offset, size) if size else b""

    def tail(self, session: Session) -> bytes:
        """What of the content goes beyond ``session`` as it is now."""
        if self._refused or self.position < self._base:
            raise FUSEError(errno.EPERM)
        return remainder(self._store, session, self._stream, bytes(self._tail), self._base)


def remainder(store: FileStore, session: Session, stream: Stream, content: bytes, start: int = 0) -> bytes:
    """What ``content`` has beyond all that the log has from ``start`` on; ``EPERM`` if it does not begin so."""
    known = stream_size(session, stream) - start
    if len(content) < known:
        raise FUSEError(errno.EPERM)
    for position in range(0, known, _COMPARE):
        size = min(_COMPARE, known - position)
        if content[position : position + size] != store.read_stream(session.id, stream, start + position, size):
            raise FUSEError(errno.EPERM)
    rest = content[known:]
    if rest and not rest.endswith(b"\n"):
        raise InvalidValue("the last line has no newline")
    return rest


async def parse_in_turns(core: "Core", stream: Stream, data: bytes, scope: str) -> list[Line]:
    """The lines of ``data``, which ends in a newline; requests that wait go first after each ``_TURN`` of them."""
    if len(data) <= _SMALL:
        return parse_lines(stream, data, scope)
    lines: list[Line] = []
    raws = data[:-1].split(b"\n")
    for first in range(0, len(raws), _TURN):
        if first:
            await core.commits.others_first()
        lines += [parse_line(stream, raw, scope=scope) for raw in raws[first : first + _TURN]]
    return lines


def parse_lines(stream: Stream, data: bytes, scope: str) -> list[Line]:
    """The lines of ``data``, which ends in a newline if it is not empty, at once."""
    return [parse_line(stream, raw, scope=scope) for raw in data[:-1].split(b"\n")] if data else []


async def append_content(core: "Core", number: int, stream: Stream, uid: int, tail: Callable[[Session], bytes]) -> None:
    """Appends what ``tail`` says goes beyond the log's end, all of it or nothing; ``uid`` wrote it."""
    session = writable_session(core, number)
    rest = tail(session)
    lines = await parse_in_turns(core, stream, rest, session.scope)
    check_cuts(core, session, lines, uid)
    await append_beyond(core, number, lambda now: _without(lines, len(rest) - len(tail(now))))


def _without(lines: list[Line], size: int) -> list[Line]:
    """``lines`` without the first ``size`` bytes of them, which others have appended meanwhile."""
    for index, line in enumerate(lines):
        if size <= 0:
            return lines[index:]
        size -= len(line.raw) + 1
    return []


async def append_beyond(core: "Core", number: int, lines_of: Callable[[Session], list[Line]]) -> None:
    """Appends what ``lines_of`` finds beyond the log's end, however often the end moves meanwhile."""
    while True:
        session = writable_session(core, number)
        lines = lines_of(session)
        try:
            if lines:
                await append_lines(core, session, lines, expected_n=session.n)
        except SessionConflictError:
            core.subjects.drop(number)
            continue
        return


async def replace_log(core: "Core", node: Node, content: bytes, uid: int) -> None:
    """A temporary renamed onto a log file (spec 1.4, Replacing); on disk when it returns."""
    stream = STREAMS[node.kind]
    await append_content(core, node.id, stream, uid, lambda session: remainder(core.store, session, stream, content))
    await core.commits.sync()
