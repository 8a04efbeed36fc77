"""What the parts of the sqlite store share: the database, the logs, the clock, the sequence, remembered rows.

Threads: all of it belongs to the store's thread. What is remembered (owners, sessions, tails of logs, the session on
top of each list, lines that wait) is what the database says: this connection is the only one that writes such rows, a
change is remembered only inside its transaction, and a transaction that fails forgets everything.

Lines that wait (``pending``) are in no table but that. So what reads ``session``, ``owner`` or ``segment`` by SQL takes
the rows through ``_session_of`` and ``_owner_of``, or asks ``_waiting``; what changes anything but by appending lines
is ``atomic``, which merges them first.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from backend.errors import StoreFull
from backend.facts import advance, later
from backend.log_contract import found
from backend.names import cwd_key
from backend.rows import Appended, Line, Owner, Session
from backend.sqlite import pending, rows
from backend.sqlite.database import Database
from backend.sqlite.durability import Durability
from backend.sqlite.logs import Logs, Tail
from backend.sqlite.pending import Waiting
from backend.sqlite.segments import packed_size

T = TypeVar("T")
P = ParamSpec("P")
C = TypeVar("C", bound="Core")

REMEMBERED = 2048
"""So many sessions are remembered, then all are forgotten: about 2 MB."""
_COUNT_BITS = 40
_BY_CWD = "mapping.owner = ?{} AND kind = 'by-cwd' AND key = ?{}"
_LEADS_TO = f"SELECT session FROM mapping WHERE {_BY_CWD.format(1, 2)}"
_LEAD = f"UPDATE mapping SET session = ?1, mtime = max(mtime + 1, ?2) WHERE {_BY_CWD.format(3, 4)} AND session <> ?1"
_CHANGE_OWNER = "UPDATE owner SET list_mtime = ?, current = ?, current_mtime = ? WHERE id = ?"


def transaction(change: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """A method that is one transaction: all of it is stored, or nothing.

    Where the disk is full it is tried again after the -wal's room was made usable, since that may be all it needs.
    """

    def attempt(self: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
        database = self._database
        database.begin()
        try:
            result = change(self, *args, **kwargs)
        except BaseException as error:
            database.rollback_for(error)
            raise
        database.commit()
        return result

    @functools.wraps(change)
    def committed(self: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return attempt(self, *args, **kwargs)
        except StoreFull:
            self._durability.reclaim()
        return attempt(self, *args, **kwargs)

    return committed


def atomic(change: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """A ``transaction`` that finds every line in the rows of its session."""
    commit = transaction(change)

    @functools.wraps(change)
    def settled(self: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._settle()
        return commit(self, *args, **kwargs)

    return settled


def growing(change: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """``atomic`` for what only adds a little: refused where the disk has no room left but for removals."""
    commit = atomic(change)

    @functools.wraps(change)
    def judged(self: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._require_room(0)
        return commit(self, *args, **kwargs)

    return judged


class Core:
    """The base of the store's parts."""

    def __init__(self, database: Database, durability: Durability, clock: Callable[[], int]) -> None:
        database.forget = self._forget
        self._database = database
        self._durability = durability
        self._logs = Logs(database)
        self._clock = clock
        self._seq: int | None = None
        self._owners: dict[int, Owner] = {}
        self._sessions: dict[int, Session] = {}
        self._tails: dict[int, Tail] = {}
        self._tops: dict[int, int] = {}
        self._known_waiting: Waiting | None = None

    def owner_by_id(self, owner: int) -> Owner | None:
        known = self._owners.get(owner)
        if known is None:
            known = self._owner_of(self._database.one(rows.OWNER_BY_ID, owner))
            if known is not None:
                if len(self._owners) >= REMEMBERED:
                    self._owners.clear()
                self._owners[owner] = known
        return known

    def session_by_id(self, session: int) -> Session | None:
        known = self._sessions.get(session)
        if known is None:
            known = self._session_of(self._database.one(rows.SESSION_BY_ID, session))
            if known is not None:
                self._remember(known)
        return known

    def _require_session(self, session: int) -> Session:
        return found(self.session_by_id(session), "session")

    def _remember(self, session: Session) -> None:
        if len(self._sessions) >= REMEMBERED:
            self._sessions.clear()
            self._tails.clear()
        self._sessions[session.id] = session

    def _session_of(self, row: Sequence[Any] | None) -> Session | None:
        """The session that a row of the tables is, as it is now; None for none."""
        if row is None:
            return None
        waiting = self._waiting.sessions.get(row[0])
        return Session(*row) if waiting is None else waiting.session

    def _owner_of(self, row: Sequence[Any] | None) -> Owner | None:
        """The owner that a row of the tables is, as it is now; None for none."""
        return None if row is None else self._waiting.owners.get(row[0]) or Owner(*row)

    def _forget(self) -> None:
        self._known_waiting = None
        self._seq = None
        self._owners.clear()
        self._sessions.clear()
        self._tails.clear()
        self._tops.clear()
        self._logs.forget()

    def _next_seq(self) -> int:
        """The store-wide sequence of a commit, inside its transaction."""
        if self._seq is None:
            [openings] = self._database.run("UPDATE store SET openings = openings + 1 RETURNING openings").fetchall()[0]
            self._seq = openings << _COUNT_BITS
        self._seq += 1
        return self._seq

    # lines that wait

    @property
    def _waiting(self) -> Waiting:
        """The lines that wait; after a failure they are read again."""
        if self._known_waiting is None:
            self._known_waiting = Waiting()
            try:
                self._take_in_again()
            except BaseException:
                self._forget()
                raise
        return self._known_waiting

    def _take_in_again(self) -> None:
        for (row,) in self._database.all("SELECT data FROM pending ORDER BY id"):
            commit = pending.decode(row)
            risen: set[int] = set()
            for append in commit.appends:
                lines, times = pending.restored(append)
                self._waiting.size += packed_size(lines)
                before = self._require_session(append.session)
                appended = self._take_in(before, lines, times, commit.now, append.seq, risen)
                self._let_move(before, appended, append.begins, commit.now)
            self._relist(risen, commit.now)

    def _take_in(
        self, before: Session, lines: Sequence[Line], times: Sequence[int], now: int, seq: int, relisted: set[int]
    ) -> Appended:
        """A session after lines that wait from now on; adds its owner to ``relisted`` where it rose in the list."""
        after, files = advance(before, lines, time_ms=times[-1], now_ns=now, seq=seq)
        unmerged = self._waiting.add(before, after, lines, times)
        self._sessions[after.id] = after
        owner = after.owner
        if owner is None or self._top(owner) == after.id:
            return Appended(after, files)
        self._tops[owner] = after.id
        unmerged.risen = True
        relisted.add(owner)
        return Appended(after, files, True)

    def _let_move(self, before: Session, appended: Appended, begins: str | None, now: int) -> Appended:
        """What lines that wait change beside their session: by-cwd leads to it, it is current, its run is live."""
        after, unmerged = appended.session, self._waiting.sessions[appended.session.id]
        if after.owner is None:
            return appended
        if after.cwd_seq != before.cwd_seq:
            unmerged.moved = True
            key = cwd_key(after.cwd)
            if self._holder(after.owner, key) != after.id:
                appended = msgspec.structs.replace(appended, keys_changed=(key,))
            self._waiting.holders[after.owner, key] = after.id
        if begins is not None:
            unmerged.begins = begins
            owner = found(self.owner_by_id(after.owner), "agent or model")
            if owner.current != after.name:
                mtime = later(owner.current_mtime, now)
                self._let_owner(msgspec.structs.replace(owner, current=after.name, current_mtime=mtime))
                appended = msgspec.structs.replace(appended, selected=True)
        return appended

    def _holder(self, owner: int, key: str) -> int | None:
        """The session to which by-cwd/<key> leads."""
        holder = self._waiting.holders.get((owner, key))
        if holder is None:
            row = self._database.one(_LEADS_TO, owner, key)
            holder = None if row is None else row[0]
        return holder

    def _let_owner(self, owner: Owner) -> None:
        """An owner as it is by lines that wait."""
        self._owners[owner.id] = self._waiting.owners[owner.id] = owner

    def _relist(self, owners: Iterable[int], now: int) -> None:
        """The lists of these owners are newer, by lines that wait."""
        for id in owners:
            owner = found(self.owner_by_id(id), "agent or model")
            self._let_owner(msgspec.structs.replace(owner, list_mtime=later(owner.list_mtime, now)))

    def _top(self, owner: int) -> int | None:
        top = self._tops.get(owner)
        if top is None:
            row = self._database.one(rows.TOP, owner)
            if row is not None:
                [top] = row
                self._tops[owner] = top
        return top

    def _settle(self) -> None:
        """Sees to it that no line waits."""
        if self._waiting.sessions:
            self._merge_all()

    def _settle_moves(self) -> None:
        """Sees to it that tables beside those of sessions, owners and lists are as they are."""
        if self._waiting.moves:
            self._merge_all()

    @transaction
    def _merge_all(self) -> None:
        self._merge()

    def _merge(self) -> None:
        """Moves the lines that wait into the rows of their sessions, inside a transaction."""
        waiting = self._waiting
        for id, unmerged in waiting.sessions.items():
            if unmerged.begins is not None:
                # Before its done, which may wait as well.
                self._database.run(rows.BEGIN_RUN, (id, unmerged.begins))
            self._tails[id] = self._logs.append(id, self._tail(id), unmerged.lines, unmerged.times)
            update = rows.UPDATE_AND_LIST_SESSION if unmerged.risen else rows.UPDATE_SESSION
            self._database.run(update, rows.appended(unmerged.session))
            if unmerged.moved:
                self._database.run(rows.UPDATE_CWD, rows.moved(unmerged.session))
        for (owner, key), holder in waiting.holders.items():
            self._database.run(_LEAD, (holder, self._clock(), owner, key))
        for changed in waiting.owners.values():
            self._database.run(_CHANGE_OWNER, (changed.list_mtime, changed.current, changed.current_mtime, changed.id))
        self._database.run("DELETE FROM pending")
        self._known_waiting = Waiting()

    def _tail(self, log: int) -> Tail:
        """Where the rows of a log end."""
        if log not in self._tails:
            self._tails[log] = self._logs.tail(log)
        return self._tails[log]

    def _require_room(self, payload: int) -> None:
        """``StoreFull`` where the disk has no room for so many bytes, before anything is written."""
        try:
            self._durability.require_room(payload)
        except StoreFull as full:
            raise self._database.remember(full) from None

    def _change_owner(self, owner: int, sql: str, *values: int | str | None) -> None:
        """An UPDATE of an owner, whose id is its last value."""
        self._database.run(sql, (*values, owner))
        self._owners.pop(owner, None)

    def _touch_directory(self, directory: int) -> None:
        """An archive directory whose names changed."""
        self._database.run(
            "UPDATE archive_directory SET mtime = max(mtime + 1, ?) WHERE id = ?", (self._clock(), directory)
        )
