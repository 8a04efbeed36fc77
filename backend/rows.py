"""The rows of a store, and what is appended to it: plain values, made nowhere else (specs 1 and 2; ``backend.store``).

Rows are immutable snapshots (``gc=False``: they are many, and no cycle goes through one). Row ids are positive, stable
for the life of the store and never reused, so the file system makes inode numbers and listing offsets of them. Times:
``*_mtime`` in ns, strictly increasing per file with every change of its content, across restarts too
(max(now, last + 1), spec 1.2); ``*_at`` in ms.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

Stream = Literal["messages", "events"]
OwnerKind = Literal["agent", "model"]
IndexKind = Literal["by-cwd", "by-hash", "by-uuid"]
Kind = Literal["message", "mark", "cut"]
RunLineKind = Literal["user", "start", "done"]


class Space(msgspec.Struct, frozen=True):
    """A private home (``home/<uid>``) or a shared place (``shared/<name>``), spec 1 Terms."""

    id: int
    name: str
    uid: int
    gid: int
    mode: int
    mtime: int


class Owner(msgspec.Struct, frozen=True):
    """An agent or a model inside a space. ``name`` of a model may be ``provider/model``.

    ``list_size`` is the exact size of index/list in bytes; the ``*_mtime`` are those of the index files and of
    the directory ``session/`` (``mtime``, changed by create, archive and delete). ``current`` is a session's name.
    """

    id: int
    space: str
    kind: OwnerKind
    name: str
    uid: int
    gid: int
    mtime: int
    current: str | None
    current_mtime: int
    list_size: int
    list_mtime: int


class Session(msgspec.Struct, frozen=True, gc=False):
    """Everything ``stat`` and the small files of a session need; ``backend.facts`` derives it line by line.

    ``owner`` is None for a session made through the API without a place. ``archive`` is the id of the archive
    directory that holds it, None while it is live. ``seq`` is the store-wide commit sequence of its last entry
    (of its creation while it is empty). ``latest_size`` is that of latest.md, its final newline included, 0
    without text; ``latest_n`` the entry it comes from. ``cwd_seq`` is the sequence at which it last recorded a
    cwd, 0 if it never did. ``meta`` is the compact JSON of meta.json without a newline. ``fault`` says why
    history cannot be proven (spec 1.5), None when it can.
    """

    id: int
    owner: int | None
    name: str
    uid: int
    session_id: str
    scope: str
    archive: int | None
    parent: str | None
    at: int | None
    created_at: int
    updated_at: int
    n: int
    seq: int
    messages_size: int
    events_size: int
    latest_size: int
    latest_n: int | None
    state: str
    cwd: str
    cwd_seq: int
    meta: str
    created_mtime: int
    updated_mtime: int
    messages_mtime: int
    events_mtime: int
    latest_mtime: int
    state_mtime: int
    cwd_mtime: int
    meta_mtime: int
    fault: str | None = None


class Source(msgspec.Struct, frozen=True):
    """What an imported session brings for its header: ``createdAt`` in ms (None: now), title, origin (any JSON)."""

    created_at: int | None = None
    title: str | None = None
    origin: Any = None


NO_SOURCE = Source()


MAX_RUN_LINES = 64


class Mapping(msgspec.Struct, frozen=True):
    """One file of by-cwd/, by-hash/ or by-uuid/: ``key`` → the session named ``session``."""

    id: int
    owner: int
    kind: IndexKind
    key: str
    session: str
    mtime: int


class Snapshot(msgspec.Struct, frozen=True):
    """AGENTS.md or SKILLS.md beside a session: attributes only (spec 1.4)."""

    name: str
    size: int
    mtime: int


class ArchiveDirectory(msgspec.Struct, frozen=True):
    """A directory below ``archived_sessions/``; ``parent`` is None for one directly below it."""

    id: int
    space: str
    parent: int | None
    name: str
    uid: int
    mtime: int


class Line(msgspec.Struct, frozen=True, gc=False):
    """A validated line: its bytes without the newline and what it changes (``backend.lines`` makes it).

    Fields that are None change nothing. ``latest_size`` counts the final newline of latest.md.
    ``key`` is what a mark is called, the role of a message. ``before`` is that of a cut from outside: refused
    (``InvalidValue``) where it is above the number its entry would get (spec 2.4). ``run`` is that of a user message,
    a start or a done; ``client`` the client id of a start (``RunLine``).
    """

    stream: Stream
    raw: bytes
    kind: Kind
    key: str
    latest_size: int | None = None
    state: str | None = None
    cwd: str | None = None
    meta: str | None = None
    before: int | None = None
    run: str | None = None
    client: str | None = None


class RunLine(msgspec.Struct, frozen=True):
    """An entry that says what became of a run (spec 3.3): its user message, its start, its done."""

    n: int
    kind: RunLineKind
    run: str
    client: str | None = None


class Row(msgspec.Struct, frozen=True, gc=False):
    """A stored entry as bytes: number, ms time, kind, the file it is in, its line without the newline."""

    n: int
    time: int
    kind: Kind
    stream: Stream
    raw: bytes


class Append(msgspec.Struct, frozen=True, gc=False):
    """Lines for one session, all or nothing. ``expected_n``: refuse unless it has that many entries.

    ``time`` in ms for all lines or, as a sequence, for each (imports, the API), else the store's clock.
    ``begins``: a run that is live from now on until a done of it is appended (``SessionFiles.live_runs``); its session
    becomes the owner's current one.
    """

    session: int
    lines: Sequence[Line]
    expected_n: int | None = None
    time: int | Sequence[int] | None = None
    begins: str | None = None


class Appended(msgspec.Struct, frozen=True, gc=False):
    """What an append changed, so that kernel caches can be told (spec 1.3).

    ``files``: names in the session directory whose size, mtime or content changed, by spec 1.2.
    ``listed``: index/list changed; ``selected``: index/current did. ``keys_new``, ``keys_changed``,
    ``keys_gone``: names in index/by-cwd.
    """

    session: Session
    files: frozenset[str] = frozenset()
    listed: bool = False
    selected: bool = False
    keys_new: tuple[str, ...] = ()
    keys_changed: tuple[str, ...] = ()
    keys_gone: tuple[str, ...] = ()


class Removed(msgspec.Struct, frozen=True):
    """What archiving or deleting a session took out of its owner's index.

    ``keys_gone`` and ``keys_changed`` (by-cwd uncovering the next session, spec 1.2) hold ``(kind, key)``.
    """

    listed: bool
    keys_gone: tuple[tuple[IndexKind, str], ...] = ()
    keys_changed: tuple[tuple[IndexKind, str], ...] = ()
