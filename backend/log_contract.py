"""What every store does alike: the log contract (spec 2.9) in terms of ``FileStore``, and rules of its rows.

A store derives from ``LogContract``, implements ``FileStore`` and six primitives, and has ``head``, ``read``,
``put``, ``create``, ``branch``, ``list``, ``delete`` and ``find``; it is durable unless it says otherwise:

- ``_find(session_id)``: the session's row, wherever it is (live, archived, without a place).
- ``_header(session)``: its header as stored.
- ``_headers(parent, limit)``: headers by createdAt descending, then sessionId; ``limit`` None is all.
- ``_create(header, lines, times)``: a session without a place, and its first entries, in one transaction.
- ``_branch(header, parent, at)``: one that holds the first ``at`` entries of ``parent`` by reference, in its scope.
- ``_now_ms()``: the store's clock.

Beside it, functions for the store's own transactions: ``new_header``, ``child_header``, ``first_row`` and
``branch_row`` make a new session, ``judge_append`` and ``judge_branch`` refuse what must be refused before anything is
written, ``found`` what is not there, ``entry_times`` are the times of an append's lines, ``listed_key`` is a session's
name in by-cwd. All pure.

Rules that the contract suite pins for every store: each accepted append that holds a line, each creation and each
branch takes the next ``seq`` of the store. An append without lines changes nothing. by-cwd holds for a key the
live session of the owner with that cwd and the highest ``cwd_seq`` above 0; a branch that inherits a recorded cwd
counts as having recorded it when it is made. ``current`` becomes None when the current session is deleted, and the
next session created becomes it. Setting what is set already moves no mtime.
"""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from backend.entries import FORMAT_VERSION, Entry, NewEntry, SessionHead, SessionHeader
from backend.errors import (
    BranchOutOfRange,
    CtxError,
    InvalidValue,
    Missing,
    SessionAlreadyExistsError,
    SessionArchived,
    SessionConflictError,
    SessionError,
    SessionNotFoundError,
    UnprovableHistory,
)
from backend.facts import INITIAL_CWD, INITIAL_STATE, initial_meta
from backend.lines import entry_of, line_of
from backend.names import cwd_key
from backend.rows import NO_SOURCE, Append, Appended, Line, Removed, Row, Session, Source
from backend.strict_json import json_fault

T = TypeVar("T")

_PAGE = 1000


def found(value: T | None, what: str) -> T:
    """The value, or ``Missing`` with the words for it."""
    if value is None:
        raise Missing(f"no such {what}")
    return value


class LogContract(ABC):
    """Mixin: ``SessionStore`` and ``Store.branch`` over a ``FileStore`` and the primitives above."""

    @abstractmethod
    def _find(self, session_id: str) -> Session | None: ...
    @abstractmethod
    def _header(self, session: Session) -> SessionHeader: ...
    @abstractmethod
    def _headers(self, parent: str | None, limit: int | None) -> Sequence[SessionHeader]: ...
    @abstractmethod
    def _create(self, header: SessionHeader, lines: Sequence[Line], times: Sequence[int]) -> None: ...
    @abstractmethod
    def _branch(self, header: SessionHeader, parent: Session, at: int) -> None: ...
    @abstractmethod
    def _now_ms(self) -> int: ...
    @abstractmethod
    def rows(self, session: int, start: int = 0, limit: int = _PAGE) -> Sequence[Row]: ...
    @abstractmethod
    def append(self, batch: Sequence[Append]) -> Sequence[Appended | CtxError]: ...
    @abstractmethod
    def delete_session(self, session: int) -> Removed: ...

    @property
    def ephemeral(self) -> bool:
        return False

    def context_directory(self, session: int) -> str | None:
        return None

    def find(self, session_id: str) -> Session | None:
        return self._find(session_id)

    async def head(self, session_id: str) -> SessionHead | None:
        session = self._find(session_id)
        return None if session is None else SessionHead(known_format(self._header(session)), session.n)

    async def read(self, session_id: str, start: int = 0) -> Sequence[Entry]:
        session = self._require(session_id)
        known_format(self._header(session))
        if start < 0:
            raise SessionError("start must not be negative: entries are numbered from 0")
        entries: list[Entry] = []
        while page := self.rows(session.id, start + len(entries), _PAGE):
            entries += map(entry_of, page)
        return entries

    async def put(self, session_id: str, expected_n: int, entries: Sequence[NewEntry]) -> None:
        session = self._require(session_id)
        lines = [line_of(entry) for entry in entries]
        [result] = self.append([Append(session.id, lines, expected_n, self._times(entries))])
        if isinstance(result, CtxError):
            raise result

    async def create(self, header: SessionHeader, entries: Sequence[NewEntry] = ()) -> None:
        self._refuse_header(header)
        self._create(header, [line_of(entry) for entry in entries], self._times(entries))

    async def branch(self, header: SessionHeader) -> None:
        self._refuse_header(header)
        if header.parent is None or header.at is None:
            raise SessionError("a branch needs parent and at")
        parent = self._require(header.parent)
        judge_branch(parent, header.at)
        self._branch(header, parent, header.at)

    async def list(self, *, parent: str | None = None, limit: int | None = None) -> Sequence[SessionHeader]:
        if limit is not None and limit < 0:
            raise SessionError("limit must not be negative")
        return self._headers(parent, limit)

    async def delete(self, session_id: str) -> bool:
        session = self._find(session_id)
        if session is not None:
            self.delete_session(session.id)
        return session is not None

    def _require(self, session_id: str) -> Session:
        session = self._find(session_id)
        if session is None:
            raise SessionNotFoundError(session_id)
        return session

    def _refuse_header(self, header: SessionHeader) -> None:
        if fault := header_fault(header):
            raise SessionError(f"the header is wrong: {fault}")
        if self._find(header.session_id) is not None:
            raise SessionAlreadyExistsError(header.session_id)

    def _times(self, entries: Sequence[NewEntry]) -> Sequence[int]:
        now = self._now_ms()
        return [now if entry.time is None else entry.time for entry in entries]


def header_fault(header: SessionHeader) -> str | None:
    """Why a header is no header of spec 2.1 (D1); None if it is one."""
    if type(header.session_id) is not str or not header.session_id:
        return "sessionId must be a non-empty string"
    if header.format_version != FORMAT_VERSION:
        return f"formatVersion must be {FORMAT_VERSION}"
    counts = (header.created_at, header.delegation_depth, 0 if header.at is None else header.at)
    if not all(type(count) is int and count >= 0 for count in counts):
        return "createdAt, delegationDepth and at must be integers of at least 0"
    if (header.parent is None) != (header.at is None):
        return "parent and at go together"
    if not all(text is None or type(text) is str for text in (header.parent, header.title)):
        return "parent and title must be strings"
    return json_fault(header.origin)


def known_format(header: SessionHeader) -> SessionHeader:
    """A stored header, refused (``SessionError``) where its formatVersion is not known (D1)."""
    if header.format_version != FORMAT_VERSION:
        raise SessionError(f"session {header.session_id!r} is of format {header.format_version}, not {FORMAT_VERSION}")
    return header


def new_header(session_id: str | None, now_ms: int, source: Source = NO_SOURCE) -> SessionHeader:
    """The header of a session made as a directory: its id a UUID unless given (spec 2.1)."""
    return SessionHeader(
        session_id=session_id or str(uuid.uuid4()),
        format_version=FORMAT_VERSION,
        created_at=now_ms if source.created_at is None else source.created_at,
        delegation_depth=0,
        title=source.title,
        origin=source.origin,
    )


def child_header(parent: SessionHeader, at: int, session_id: str | None, created_at: int) -> SessionHeader:
    """The header of a branch; its id ``<parent>:branch:<8 hex of a UUID>`` unless given (spec 2.8)."""
    return msgspec.structs.replace(
        parent,
        session_id=session_id or f"{parent.session_id}:branch:{uuid.uuid4().hex[:8]}",
        created_at=created_at,
        parent=parent.session_id,
        at=at,
    )


def scope_of(space: str | None) -> str:
    """The scope of sessions in that space (spec 1.3); one without a place is temporary."""
    if space is None:
        return "temp"
    return "shared" if space.startswith("shared/") else "private"


def first_row(
    header: SessionHeader, *, id: int, owner: int | None, name: str, uid: int, scope: str, seq: int, now_ns: int
) -> Session:
    """The row of an empty session, made now: ``seq`` is that of its creation."""
    return Session(
        id=id,
        owner=owner,
        name=name,
        uid=uid,
        session_id=header.session_id,
        scope=scope,
        archive=None,
        parent=header.parent,
        at=header.at,
        created_at=header.created_at,
        updated_at=header.created_at,
        n=0,
        seq=seq,
        messages_size=0,
        events_size=0,
        latest_size=0,
        latest_n=None,
        state=INITIAL_STATE,
        cwd=INITIAL_CWD,
        cwd_seq=0,
        meta=initial_meta(scope),
        created_mtime=now_ns,
        updated_mtime=now_ns,
        messages_mtime=now_ns,
        events_mtime=now_ns,
        latest_mtime=now_ns,
        state_mtime=now_ns,
        cwd_mtime=now_ns,
        meta_mtime=now_ns,
    )


def branch_row(made: Session, then: Session) -> Session:
    """The row of a branch: ``made`` with what the files of its parent said at that entry (``then``).

    Its mtimes stay those of its creation; a cwd that was recorded counts as recorded by its creation.
    """
    return msgspec.structs.replace(
        made,
        updated_at=then.updated_at if then.n else made.updated_at,
        n=then.n,
        messages_size=then.messages_size,
        events_size=then.events_size,
        latest_size=then.latest_size,
        latest_n=then.latest_n,
        state=then.state,
        cwd=then.cwd,
        cwd_seq=made.seq if then.cwd_seq else 0,
        meta=then.meta,
    )


def judge_append(session: Session | None, append: Append) -> Session:
    """The session to append to, or the error that refuses: nothing may be written before this has passed.

    ``Missing``, ``UnprovableHistory``, ``SessionArchived``, ``SessionConflictError``, ``InvalidValue`` (a cut's bound).
    """
    if session is None:
        raise Missing("the session is gone")
    if session.fault is not None:
        raise UnprovableHistory(f"history cannot be proven, nothing was appended: {session.fault}")
    if session.archive is not None:
        raise SessionArchived("the session is archived, and read-only")
    if append.expected_n not in (None, session.n):
        raise SessionConflictError(session.session_id, append.expected_n or 0, session.n)
    for n, line in enumerate(append.lines, session.n):
        if line.before is not None and line.before > n:
            raise InvalidValue(f"events.jsonl: before must be at most {n}, the cut's own number")
    return session


def judge_branch(parent: Session, at: int) -> None:
    """Refuses (``BranchOutOfRange``) to branch where the parent has no such entry boundary."""
    if not 0 <= at <= parent.n:
        raise BranchOutOfRange(f"at must be from 0 to {parent.n}, the parent's length")


def entry_times(append: Append, now_ms: int) -> Sequence[int]:
    """The ms time of each line of an append."""
    if append.time is None:
        return [now_ms] * len(append.lines)
    return append.time if isinstance(append.time, Sequence) else [append.time] * len(append.lines)


def listed_key(session: Session) -> str | None:
    """The name in index/by-cwd under which a live session competes; None while it recorded no cwd."""
    return cwd_key(session.cwd) if session.cwd_seq else None
