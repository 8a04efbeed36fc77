"""What the lines of log files say: a session's row, derived from all of them (spec 1.3, 1.5)."""

import msgspec

from backend import facts
from backend.jsonl.order import Base, OrderLine
from backend.lines import foreign_line
from backend.rows import Line, Session, Stream

_REQUESTS = 512


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
