"""Brings an owner's index up to date with its sessions, from where it stopped (design, Architecture 1).

Most searches find little that is new: the owner's times say whether anything but its newest session can have changed,
and index/list, the newest first, where to stop looking. The first update of a process looks at every session.

The store belongs to another thread as a rule, so everything is asked of it through ``ask``, a little at a time. What is
indexed was made durable first: a power cut must not leave words of entries that never were.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from backend.asking import Ask, live_ids, live_sessions, some_rows
from backend.errors import Missing
from backend.lines import entry_of
from backend.rows import Row, Session
from backend.search.index import Indexed, Mark, SearchIndex, Text
from backend.search.texts import text_of
from backend.store import Store

_NAMES = 32
_ENTRIES, _BYTES = 64, 256 << 10
_BATCH_CHARACTERS = 2 << 20
_BATCH_ENTRIES = 4096


class _Range(NamedTuple):
    """Entries of a session that are to be indexed; ``start`` is where its index begins."""

    session: int
    start: int
    first: int
    stop: int


class Shrunk(Exception):
    """A log has fewer entries than were indexed, or was deleted: the index begins anew."""


class Progress:
    """How far an update is: so many entries are indexed, of so many that are new. Any thread may read it."""

    def __init__(self) -> None:
        self.done = 0
        self.of = 0


def update(
    index: SearchIndex,
    owner: int,
    ask: Ask,
    sync: Callable[[], None],
    *,
    thorough: bool,
    progress: Progress | None = None,
) -> None:
    """Indexes what is new. ``thorough``: look at every session, whatever the index says of itself.

    ``sync`` returns when what is committed is on disk.
    """
    at = progress or Progress()
    try:
        _update(index, owner, ask, sync, thorough, at)
    except Shrunk:
        index.clear()
        _update(index, owner, ask, sync, thorough=True, at=at)


def _update(index: SearchIndex, owner: int, ask: Ask, sync: Callable[[], None], thorough: bool, at: Progress) -> None:
    seen = ask(partial(_look, owner))
    if seen is None:
        return
    mark, names = seen
    before = index.mark
    if thorough:
        sessions: Iterable[Session] = live_sessions(ask, owner)
    elif mark._replace(seq=before.seq) == before:
        sessions = ask(partial(_named, owner, names[:1]))
    else:
        sessions = _newer(owner, names, before.seq, ask)
    count = index.count()
    ranges: dict[int, _Range] = {}
    for session in sessions:
        known = index.indexed(session.id)
        count += known is None
        if (found := _missing(session, known, ask)) is not None:
            ranges[session.id] = found
    if count != len(names):
        ranges |= _without_the_gone(index, owner, ask)
    if ranges:
        sync()
        _index(index, ranges.values(), ask, at)
    if mark != before:
        index.set_mark(mark)


def _look(owner: int, store: Store) -> tuple[Mark, list[str]] | None:
    """How far an index of now is, and the names of the live sessions, the newest first."""
    row = store.owner_by_id(owner)
    if row is None:
        return None
    names = store.list_content(owner).decode().split()
    newest = store.session(owner, names[0]) if names else None
    return Mark(row.mtime, row.list_mtime, newest.seq if newest else 0, newest.id if newest else 0), names


def _newer(owner: int, names: Sequence[str], seq: int, ask: Ask) -> Iterator[Session]:
    """Those that changed since; one that is archived meanwhile is not among them."""
    for at in range(0, len(names), _NAMES):
        for session in ask(partial(_named, owner, names[at : at + _NAMES])):
            if session.seq <= seq:
                return
            yield session


def _named(owner: int, names: Sequence[str], store: Store) -> list[Session]:
    return [session for name in names if (session := store.session(owner, name)) is not None]


def _missing(session: Session, known: Indexed | None, ask: Ask) -> _Range | None:
    """What is not indexed of a session yet; one without entries is indexed too, so that all are counted."""
    if known is None:
        start = ask(partial(_start, session))
        return _Range(session.id, start, start, session.n)
    if session.n < known.n:
        raise Shrunk
    return _Range(session.id, known.start, known.n, session.n) if session.n > known.n else None


def _start(session: Session, store: Store) -> int:
    """A branch shares its first entries with its parent: they are found there, as long as that is live."""
    parent = None if session.parent is None else store.find(session.parent)
    shared = parent is not None and parent.owner == session.owner and parent.archive is None
    return session.at or 0 if shared else 0


def _without_the_gone(index: SearchIndex, owner: int, ask: Ask) -> dict[int, _Range]:
    """Forgets sessions that are not live any more; branches of theirs, which are to be indexed again.

    ``Shrunk`` if one was deleted: nothing of it may stay.
    """
    known, live = index.sessions(), live_ids(ask, owner).keys()
    gone = known.keys() - live
    if any(ask(partial(_is_deleted, session)) for session in gone):
        raise Shrunk
    branches = [session for session, indexed in known.items() if indexed.start and session in live]
    again = {found.session: found for session in branches if gone and (found := ask(partial(_orphan, session)))}
    index.forget([*gone, *again])
    return again


def _is_deleted(session: int, store: Store) -> bool:
    return store.session_by_id(session) is None


def _orphan(session: int, store: Store) -> _Range | None:
    """The whole of a branch whose parent is not live any more."""
    row = store.session_by_id(session)
    return _Range(session, 0, 0, row.n) if row is not None and not _start(row, store) else None


def _index(index: SearchIndex, ranges: Iterable[_Range], ask: Ask, at: Progress) -> None:
    """Adds the entries of all ranges, many of them in each transaction."""
    todo = deque(ranges)
    at.of += sum(part.stop - part.first for part in todo)
    texts: dict[int, list[Text]] = {}
    bounds: dict[int, Indexed] = {}
    size = count = 0
    while todo:
        for part, rows in ask(partial(_read, todo)):
            bounds[part.session] = Indexed(part.start, part.first + len(rows))
            at.done += len(rows)
            for row in rows:
                if text := text_of(entry_of(row)):
                    texts.setdefault(part.session, []).append(Text(row.n, row.time, text))
                    size, count = size + len(text), count + 1
        if size > _BATCH_CHARACTERS or count > _BATCH_ENTRIES or not todo:
            index.add(texts, bounds)
            texts, bounds, size, count = {}, {}, 0, 0


def _read(todo: deque[_Range], store: Store) -> list[tuple[_Range, Sequence[Row]]]:
    """The next entries of ``todo``, which loses them; a session that is gone meanwhile has none."""
    found: list[tuple[_Range, Sequence[Row]]] = []
    left, room = _ENTRIES, _BYTES
    while todo and left > 0 and room > 0:
        part = todo.popleft()
        try:
            rows = some_rows(part.session, part.first, part.stop, store)
        except Missing:
            continue
        found.append((part, rows))
        left -= 1 + len(rows)
        room -= sum(len(row.raw) for row in rows)
        if rows and part.first + len(rows) < part.stop:
            todo.appendleft(part._replace(first=part.first + len(rows)))
    return found
