"""One search over an owner's sessions: what the index leads to, judged by the log (spec 4.1).

An entry is a hit only if its text, read from the log now, matches: an index that is wrong can hide, never make up.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from backend.asking import Ask
from backend.entries import Entry, MessageEntry
from backend.errors import Missing
from backend.lines import entry_of
from backend.rows import Kind
from backend.search.index import Hit, SearchIndex
from backend.search.snippets import snippets
from backend.search.texts import text_of
from backend.store import Store

_AT_ONCE = 8


class Found(NamedTuple):
    """An entry that matches: ``time`` in ms; ``role`` of a message; ``snippet``: a line of at most 240 characters."""

    time: int
    session: str
    id: int
    n: int
    kind: Kind
    role: str | None
    snippet: str


def search(index: SearchIndex, ask: Ask, expression: str, limit: int) -> list[Found]:
    """The newest hits, by time, session and number, downwards (``backend.search.query``)."""
    hits = index.find(expression, limit)
    found: list[Found] = []
    for at in range(0, len(hits), _AT_ONCE):
        read = ask(partial(_read, hits[at : at + _AT_ONCE]))
        shown = snippets(expression, [text_of(entry) for *_, entry in read])
        found += [_found(*one, snippet) for one, snippet in zip(read, shown, strict=True) if snippet is not None]
    return found


def _read(hits: Sequence[Hit], store: Store) -> list[tuple[Hit, str, Kind, Entry]]:
    """Those that are there, with their sessions' names."""
    read: list[tuple[Hit, str, Kind, Entry]] = []
    for hit in hits:
        session = store.session_by_id(hit.session)
        if session is None or session.archive is not None or session.n <= hit.n:
            continue
        try:
            [row] = store.rows(hit.session, hit.n, 1)
        except Missing:
            continue
        read.append((hit, session.name, row.kind, entry_of(row)))
    return read


def _found(hit: Hit, session: str, kind: Kind, entry: Entry, snippet: str) -> Found:
    role = entry.message.get("role") if isinstance(entry, MessageEntry) else None
    return Found(entry.time, session, hit.session, hit.n, kind, role if isinstance(role, str) else None, snippet)
