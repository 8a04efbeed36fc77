"""What the parts of the sqlite store share: the database, the logs, the clock, the sequence, remembered rows.

Threads: all of it belongs to the store's thread. What is remembered (owners, sessions, tails of logs, the session on
top of each list) is what the database says: this connection is the only one that writes such rows, a change is
remembered only inside its transaction, and a transaction that fails forgets everything.
"""

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from backend.errors import Missing, StoreFull
from backend.sqlite import rows
from backend.sqlite.database import Database
from backend.sqlite.durability import Durability
from backend.sqlite.logs import Logs, Tail
from backend.store import Owner, Session

T = TypeVar("T")
P = ParamSpec("P")
C = TypeVar("C", bound="Core")

REMEMBERED = 2048
"""So many sessions are remembered, then all are forgotten: about 2 MB."""
_COUNT_BITS = 40


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

    def owner_by_id(self, owner: int) -> Owner | None:
        known = self._owners.get(owner)
        if known is None:
            known = rows.made(Owner, self._database.one(rows.OWNER_BY_ID, owner))
            if known is not None:
                if len(self._owners) >= REMEMBERED:
                    self._owners.clear()
                self._owners[owner] = known
        return known

    def session_by_id(self, session: int) -> Session | None:
        known = self._sessions.get(session)
        if known is None:
            known = rows.made(Session, self._database.one(rows.SESSION_BY_ID, session))
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

    def _forget(self) -> None:
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


def atomic(change: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
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


def growing(change: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """``atomic`` for what only adds a little: refused where the disk has no room left but for removals."""
    commit = atomic(change)

    @functools.wraps(change)
    def judged(self: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._require_room(0)
        return commit(self, *args, **kwargs)

    return judged


def found(value: T | None, what: str) -> T:
    """The value, or ``Missing``."""
    if value is None:
        raise Missing(f"no such {what}")
    return value
