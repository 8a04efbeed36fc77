"""What a log says of a client id: whether a send is new, a retry, or something that no log may say (spec 3.3).

Pure, over a store; runs on the store's thread. Finds everything by index.
"""

from collections.abc import Sequence
from typing import NamedTuple

from backend.errors import InvalidValue, UnprovableHistory
from backend.rows import RunLine, Session
from backend.store import FileStore
from backend.strict_json import lenient_object


class Wanted(NamedTuple):
    """What must be equal for a send to be a retry; ``cwd`` is the effective one."""

    input: str
    scope: str
    cwd: str


class Recorded(NamedTuple):
    """A send that was recorded: its run, and the lines of its start and (if it has ended) its done."""

    run: str
    start: bytes
    done: bytes | None


def find_recorded(store: FileStore, session: Session, client_id: str, wanted: Wanted) -> Recorded | None:
    """The recorded send of that client id, None if it is new.

    ``InvalidValue``: it was something else. ``UnprovableHistory``: the log contradicts itself, or cannot be proven.
    """
    if session.fault is not None:
        raise UnprovableHistory(f"history cannot be proven, nothing was appended: {session.fault}")
    starts = store.starts(session.id, client_id)
    if not starts:
        return None
    (user, start), dones = _proven(starts, store.run_lines(session.id, starts[0].run))
    recorded = Recorded(start.run, _raw(store, session, start), _one_done(store, session, dones))
    begun = lenient_object(recorded.start)
    text = lenient_object(_raw(store, session, user)).get("content")
    if (text, begun.get("scope"), begun.get("cwd")) != wanted:
        raise InvalidValue("this id was used in this session before, for something else: choose another")
    return recorded


def _proven(starts: Sequence[RunLine], lines: Sequence[RunLine]) -> tuple[tuple[RunLine, RunLine], list[RunLine]]:
    """The user message and the start of a run, and its dones."""
    users, begun, dones = ([line for line in lines if line.kind == kind] for kind in ("user", "start", "done"))
    if len(starts) != 1 or len(begun) != 1:
        raise UnprovableHistory("history cannot be proven: this id, or its run, was started twice")
    if len(users) != 1:
        raise UnprovableHistory("history cannot be proven: the run of this id has no user message, or several")
    return (users[0], begun[0]), dones


def _one_done(store: FileStore, session: Session, dones: Sequence[RunLine]) -> bytes | None:
    different = {_raw(store, session, line) for line in dones}
    if len(different) > 1:
        raise UnprovableHistory("history cannot be proven: the run of this id ended in different ways")
    return next(iter(different), None)


def _raw(store: FileStore, session: Session, line: RunLine) -> bytes:
    [row] = store.rows(session.id, line.n, 1)
    return row.raw
