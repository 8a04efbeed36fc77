"""Sessions for programs: open, branch, write, compact on any store (spec 2.7–2.9).

A handle holds a header, a length and a draft, and no entry: what it gives out is decoded from the store on access, as
entries never change. So opening costs the same for any log, and a handle reads on only while its session exists.
One thread, and one event loop (trio's or asyncio's) at a time. Nothing here knows users' rights or files.
"""

import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypedDict

import msgspec

from backend.entries import Entry, NewCut, NewEntry, NewMark, NewMessage, SessionHead, SessionHeader
from backend.errors import BranchOutOfRange, CtxError, Missing, SessionError, SessionNotFoundError
from backend.invariants import Fault, check_invariants
from backend.lines import entry_of
from backend.log_contract import child_header, new_header
from backend.marks import FieldType, Marks
from backend.new_entries import judge, new_entry
from backend.projection import Projection, scan
from backend.requests import Request, reconstruct_request
from backend.rows import Row
from backend.sequences import Decoded
from backend.store import Store
from backend.strict_json import json_copy
from backend.turns import Turns


class Branched(TypedDict):
    """The event ``chatluna/session-branch``: ids of parent and child, and how many entries they share."""

    parent: str
    session: str
    at: int


Listener = Callable[[Branched], None]


class Sessions:
    """The sessions of a store. ``clock``: ns since the epoch."""

    def __init__(self, store: Store, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._store = store
        self._clock = clock
        self._marks = Marks()
        self._listeners: list[Listener] = []

    def on(self, event: Literal["chatluna/session-branch"], listener: Listener) -> Callable[[], None]:
        """Calls ``listener`` after every branch; what it raises reaches the caller of ``branch``, whose child stays.

        Returns the function that ends it.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def open(self, session_id: str) -> "SessionHandle":
        """A handle on the session as it is now; it is created where there is none (``SessionError``: a bad id)."""
        head = await self._store.head(session_id)
        return await self.create(session_id) if head is None else self._handle(head)

    async def create(
        self,
        id: str | None = None,
        *,
        parent: str | None = None,
        at: int | None = None,
        delegation_depth: int | None = None,
        title: str | None = None,
        origin: Any = None,
    ) -> "SessionHandle":
        """A new session, with the first ``at`` entries of ``parent`` (all unless given) where that is given.

        The id is a UUID unless given. ``SessionAlreadyExistsError``, ``SessionNotFoundError`` (the parent),
        ``BranchOutOfRange``, ``SessionError``.
        """
        fresh = new_header(None, self._now_ms())
        given = _given(fresh.session_id if id is None else id, delegation_depth, title, origin)
        if parent is not None:
            head = await self._require(parent)
            return await self._branch(head, head.length if at is None else at, given)
        if at is not None:
            raise SessionError("at needs a parent")
        header = msgspec.structs.replace(fresh, **given)
        await self._store.create(_own(header))
        return self._handle(SessionHead(header, 0))

    async def branch(
        self,
        session_id: str,
        at: int,
        *,
        id: str | None = None,
        delegation_depth: int | None = None,
        title: str | None = None,
        origin: Any = None,
    ) -> "SessionHandle":
        """A child that holds the first ``at`` entries by reference (spec 2.8), and what is not given, of its parent.

        ``SessionNotFoundError``, ``SessionAlreadyExistsError``, ``BranchOutOfRange``, ``SessionError``.
        """
        head = await self._require(session_id)
        child = await self._branch(head, at, _given(id, delegation_depth, title, origin))
        for listener in tuple(self._listeners):
            listener({"parent": session_id, "session": child.id, "at": at})
        return child

    async def list(self, *, parent: str | None = None, limit: int | None = None) -> Sequence[SessionHeader]:
        """Headers, the newest first; ``limit`` 0 is none."""
        return [_own(header) for header in await self._store.list(parent=parent, limit=limit)]

    async def head(self, session_id: str) -> SessionHead | None:
        """Header and length, None where there is no such session; reads no entry."""
        head = await self._store.head(session_id)
        return None if head is None else SessionHead(_own(head.header), head.length)

    async def delete(self, session_id: str) -> bool:
        """Deletes a session with all its entries; False where there was none. Its branches stay whole."""
        return await self._store.delete(session_id)

    async def define(self, name: str, schema: Mapping[str, FieldType]) -> None:
        """Allows marks of that name, with these keys (spec 2.3); not stored. ``SessionError``: see ``Marks.define``."""
        self._marks.define(name, schema)

    async def release_if_ephemeral(self, session_id: str) -> None:
        """Forgets a session of a store that lives in memory; does nothing in any other."""
        if self._store.ephemeral:
            await self._store.delete(session_id)

    async def _require(self, session_id: str) -> SessionHead:
        head = await self._store.head(session_id)
        if head is None:
            raise SessionNotFoundError(session_id)
        return head

    async def _branch(self, parent: SessionHead, at: int, given: Mapping[str, Any]) -> "SessionHandle":
        if type(at) is not int or not 0 <= at <= parent.length:
            raise BranchOutOfRange(f"at must be an integer from 0 to {parent.length}, the parent's length")
        header = msgspec.structs.replace(child_header(parent.header, at, None, self._now_ms()), **given)
        await self._store.branch(_own(header))
        return self._handle(SessionHead(header, at))

    def _handle(self, head: SessionHead) -> "SessionHandle":
        return SessionHandle(self, self._store, head, self._marks)

    def _now_ms(self) -> int:
        return self._clock() // 1_000_000


class SessionHandle:
    """A session as it was when it was opened, and what was appended through this handle since.

    ``write``, ``commit``, ``mark`` and ``compact`` run one after another in the order of the calls, each with what it
    was given when it was called. They append all or nothing, and raise ``SessionError`` for what may not be appended
    and ``SessionConflictError`` once the stored log has other entries: then open it again. A refused call leaves
    everything as it was. One that is cancelled while its store is still writing may have been appended or not: if it
    was, the next call conflicts.
    """

    def __init__(self, sessions: Sessions, store: Store, head: SessionHead, marks: Marks) -> None:
        row = store.find(head.header.session_id)
        if row is None:
            raise SessionNotFoundError(head.header.session_id)
        self._sessions = sessions
        self._store = store
        self._header = head.header
        self._row = row.id
        self._length = head.length
        self._marks = marks
        self._turns = Turns()
        self._draft: Any = None
        self._projection = Projection(self._rows)

    @property
    def id(self) -> str:
        """The session's id."""
        return self._header.session_id

    @property
    def header(self) -> SessionHeader:
        """What the session is."""
        return _own(self._header)

    @property
    def length(self) -> int:
        """How many entries this handle has."""
        return self._length

    @property
    def draft(self) -> Any:
        """The message in the making, None without one; never stored."""
        return json_copy(self._draft)

    def set_draft(self, message: Mapping[str, Any] | None) -> None:
        """Replaces the draft; ``SessionError`` unless it is JSON."""
        self._draft = json_copy(message)

    def entries(self) -> Sequence[Entry]:
        """The log, as an immutable sequence."""
        return Decoded(self._length, self._entries)

    def messages(self) -> Sequence[Any]:
        """What the model is sent (spec 2.5), as an immutable sequence; costs what is new since the last call."""
        self._projection.advance(self._length)
        return self._projection.messages()

    def write(self, entries: Sequence[NewEntry | Mapping[str, Any]]) -> Coroutine[Any, Any, range]:
        """Appends entries, all or none of them; returns their numbers."""
        return self._turns.run(partial(self._append, _copies(entries)))

    def commit(self, message: dict[str, Any], meta: dict[str, Any] | None = None) -> Coroutine[Any, Any, int]:
        """Appends a message, the assistant's only, and clears the draft; returns its number."""
        return self._turns.run(partial(self._commit, _copies([NewMessage(message, meta)])))

    def mark(self, name: str, data: Any) -> Coroutine[Any, Any, int]:
        """Appends a mark; returns its number."""
        return self._turns.run(partial(self._append_one, _copies([NewMark(name, data)])))

    def compact(self, data: dict[str, Any]) -> Coroutine[Any, Any, int]:
        """Appends a cut of ``{before, summary, reason, native?, meta?}`` (spec 2.4); returns its number."""
        return self._turns.run(partial(self._append_one, _copies([NewCut(data)])))

    async def branch(
        self,
        at: int,
        *,
        id: str | None = None,
        delegation_depth: int | None = None,
        title: str | None = None,
        origin: Any = None,
    ) -> "SessionHandle":
        """As ``Sessions.branch``, of the entries that this handle has."""
        if type(at) is not int or not 0 <= at <= self._length:
            raise BranchOutOfRange(f"at must be an integer from 0 to {self._length}, this handle's length")
        return await self._sessions.branch(
            self.id, at, id=id, delegation_depth=delegation_depth, title=title, origin=origin
        )

    def reconstruct_request(self, n: int) -> Request:
        """The request that the prompt mark at entry ``n`` records (spec 2.6); ``NoPromptError``."""
        return reconstruct_request(self._rows, self._length, n)

    def check_invariants(self) -> Sequence[Fault]:
        """Every fault of the log, none if all is well; reads all of it."""
        return check_invariants(self.entries())

    async def _append(self, entries: Sequence[NewEntry] | CtxError) -> range:
        if isinstance(entries, CtxError):
            raise entries
        for n, entry in enumerate(entries, self._length):
            judge(entry, n, self._marks)
        if self._store.session_by_id(self._row) is None:
            raise SessionNotFoundError(self.id)
        await self._store.put(self.id, self._length, entries)
        numbers = range(self._length, self._length + len(entries))
        self._length = numbers.stop
        return numbers

    async def _append_one(self, entries: Sequence[NewEntry] | CtxError) -> int:
        return (await self._append(entries)).start

    async def _commit(self, entries: Sequence[NewEntry] | CtxError) -> int:
        match entries:
            case [NewMessage(message={"role": "assistant"})] | CtxError():
                n = await self._append_one(entries)
                self._draft = None
                return n
        raise SessionError("only a message of the assistant can be committed")

    def _entries(self, start: int, stop: int) -> Iterator[Entry]:
        return map(entry_of, scan(self._rows, start, stop))

    def _rows(self, start: int, limit: int) -> Sequence[Row]:
        try:
            return self._store.rows(self._row, start, limit)
        except Missing:
            raise SessionNotFoundError(self.id) from None


def _given(id: str | None, delegation_depth: int | None, title: str | None, origin: Any) -> dict[str, Any]:
    """The header fields that a caller chose, copied."""
    fields = {"session_id": id, "delegation_depth": delegation_depth, "title": title, "origin": json_copy(origin)}
    return {name: value for name, value in fields.items() if value is not None}


def _own(header: SessionHeader) -> SessionHeader:
    """A header that shares nothing."""
    return msgspec.structs.replace(header, origin=json_copy(header.origin))


def _copies(entries: Sequence[NewEntry | Mapping[str, Any]]) -> Sequence[NewEntry] | CtxError:
    """Copies of what a caller hands over, or why it is refused when its turn has come."""
    try:
        return list(map(new_entry, entries))
    except CtxError as refusal:
        return refusal
