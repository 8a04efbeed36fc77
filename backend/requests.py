"""A request as it was sent to the model, rebuilt from the log (spec 2.6). Pure over rows."""

from collections.abc import Sequence
from typing import Any, TypedDict

from backend.entries import MarkEntry
from backend.errors import NoPromptError
from backend.lines import entry_of
from backend.projection import PAGE, Projection, Rows
from backend.rows import Row


class Request(TypedDict):
    """The recorded header, the context in force (None: never recorded), and the messages that were sent."""

    header: dict[str, Any]
    context: Any
    messages: Sequence[Any]


def reconstruct_request(rows: Rows, length: int, n: int) -> Request:
    """The request that the ``prompt`` mark at entry ``n`` of a log of ``length`` entries records.

    Nothing after ``n`` counts. ``NoPromptError`` unless that entry is a prompt mark with a header.
    """
    projection = Projection(rows)
    header = _header(rows, length, n)
    projection.advance(n)
    return {"header": header, "context": _context(rows, n), "messages": projection.messages()}


def prompt_header(row: Row) -> dict[str, Any] | None:
    """The header that a row records, None unless it is a ``prompt`` mark that has one."""
    match _mark(row, "prompt"):
        case MarkEntry(data={"header": dict(header)}):
            return header
    return None


def context_mark(row: Row) -> MarkEntry | None:
    """The ``request/context`` mark that a row is, if it is one."""
    return _mark(row, "request/context")


def _header(rows: Rows, length: int, n: int) -> dict[str, Any]:
    if type(n) is int and 0 <= n < length and (header := prompt_header(rows(n, 1)[0])) is not None:
        return header
    raise NoPromptError(f"entry {n} is not a prompt mark that holds a header")


def _context(rows: Rows, n: int) -> Any:
    """The data of the last request/context mark at or before ``n``."""
    for stop in range(n + 1, 0, -PAGE):
        start = max(0, stop - PAGE)
        for row in reversed(rows(start, stop - start)):
            if mark := context_mark(row):
                return mark.data
    return None


def _mark(row: Row, name: str) -> MarkEntry | None:
    """The mark of that name that a row is, None if it is anything else."""
    if row.kind != "mark" or not _may_name(row.raw, name.encode()):
        return None
    entry = entry_of(row)
    return entry if isinstance(entry, MarkEntry) and entry.name == name else None


def _may_name(raw: bytes, name: bytes) -> bool:
    """False only if a line does not hold the name, escaped or not: most need not be decoded."""
    return name in raw or b"\\u" in raw or b"\\/" in raw
