"""A whole store, which nobody else uses meanwhile: every session and index of every home and shared space."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from backend.asking import SESSIONS, live_sessions
from backend.doctor.faults import Fault
from backend.doctor.owners import check_owner
from backend.doctor.sessions import check_session, facts_of
from backend.rows import Owner, Session
from backend.store import Store

T = TypeVar("T")


def sessions_directory(owner: Owner) -> str:
    """Where an owner's sessions are, relative to its home or shared space."""
    return f"agent/{owner.name}/session" if owner.kind == "agent" else f"model/{owner.name}.d/session"


class StoreExamination:
    """Counts what it reads: ``sessions``, ``entries``."""

    def __init__(self, store: Store) -> None:
        self.sessions = 0
        self.entries = 0
        self._store = store
        self._facts = facts_of(store.status().format)

    def faults(self) -> Iterator[Fault]:
        """All that is wrong, with paths relative to the mount's root (``StoreFailed``: it cannot be read)."""
        for space in (*self._store.spaces("home/"), *self._store.spaces("shared/")):
            for owner in (*self._store.owners(space.name, "agent"), *self._store.owners(space.name, "model")):
                yield from self._owner(owner, f"{space.name}/{sessions_directory(owner)}")
            yield from self._archive(space.name, None, f"{space.name}/archived_sessions")

    def _owner(self, owner: Owner, path: str) -> Iterator[Fault]:
        yield from self._sessions(live_sessions(self._ask, owner.id), path)
        yield from check_owner(self._ask, owner.id, f"{path}/index")

    def _archive(self, space: str, parent: int | None, path: str) -> Iterator[Fault]:
        for directory in self._store.archive_directories(space, parent):
            inner, after = f"{path}/{directory.name}", 0
            while page := self._store.archived_sessions(directory.id, after, SESSIONS):
                yield from self._sessions(page, inner)
                after = page[-1].id
            yield from self._archive(space, directory.id, inner)

    def _sessions(self, sessions: Iterable[Session], path: str) -> Iterator[Fault]:
        for session in sessions:
            yield from self._session(session, f"{path}/{session.name}")

    def _session(self, session: Session, path: str) -> Sequence[Fault]:
        looked = check_session(self._ask, session, path, self._facts)
        self.sessions += 1
        self.entries += looked.entries
        return looked.faults

    def _ask(self, work: Callable[[Store], T], /) -> T:
        return work(self._store)
