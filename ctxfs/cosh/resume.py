"""Which session of cosh-core a turn goes on with (spec 5.2). Pure: no process, no clock, no file.

One state, one lock that is not re-entrant: every method takes it, ``lease`` keeps it until it ends, and meanwhile the
others wait, so whoever runs several turns gives each a thread. A turn begins with ``start`` and reports what it sees
with the ``Attempt`` it got; only the newest attempt changes anything, so an old worker that ends late is heard by
nobody. A structured error is to be reported before whatever ended the turn after it.

A lease is held from the validation of a selection to its commit, and over a whole clear: so the two are linear.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

LOAD = "load"
PERSIST = "persist"

_LOAD_CODES = frozenset(("not_found", "corrupt", "incompatible_version", "scope_mismatch"))
_HINTS = {
    LOAD: "Choose another session, or start a new one.",
    PERSIST: "Start a new session; what was said last may not have been kept.",
}


class Phase(Enum):
    """How far a selection is."""

    SELECTED = "selected"
    RESTORING = "restoring"
    FAILED = "failed"


class SessionFailure(NamedTuple):
    """What core said of a session: its code, the phase, and its message as it came."""

    code: str
    phase: str
    message: str

    @property
    def is_of_session(self) -> bool:
        """Whether it is about the session that was carried, and not only about the turn."""
        return self.phase == PERSIST or (self.phase == LOAD and self.code in _LOAD_CODES)

    @property
    def hint(self) -> str:
        """What to do next."""
        return _HINTS.get(self.phase, "")


class Selection(NamedTuple):
    """A session that a person chose."""

    session_id: str
    phase: Phase = Phase.SELECTED
    failure: SessionFailure | None = None


class Attempt(NamedTuple):
    """One actual start: its generation token, the id that it carries with ``--resume``, and whether it was chosen."""

    generation: int
    session_id: str | None
    is_selected: bool = False


class Snapshot(NamedTuple):
    """The state at one moment."""

    workspace: str
    active_id: str | None
    selection: Selection | None
    generation: int


class ResumeState:
    """The active session of a workspace, and the one that was selected instead."""

    def __init__(self, workspace: str, active_id: str | None = None) -> None:
        self._lock = threading.Lock()
        self._workspace = workspace
        self._active = active_id
        self._selection: Selection | None = None
        self._generation = 0
        self._current: Attempt | None = None

    def snapshot(self) -> Snapshot:
        """What holds now."""
        with self._lock:
            return Snapshot(self._workspace, self._active, self._selection, self._generation)

    @contextmanager
    def lease(self) -> Iterator["Lease"]:
        """Excludes every other change until it ends; from validation to commit, or over a clear."""
        with self._lock:
            yield Lease(self)

    def select(self, session_id: str) -> None:
        """A person chose this session, and nothing is left to validate."""
        with self.lease() as lease:
            lease.select(session_id)

    def reject(self) -> None:
        """The selection is given up."""
        with self._lock:
            self._advance()
            self._selection = None

    def start(self, *, resume: bool = True) -> Attempt:
        """A turn begins now; without ``resume`` it carries no session and uses up no selection."""
        with self._lock:
            self._advance()
            self._back_to_selected()
            attempt = self._attempt() if resume else Attempt(self._generation, None)
            if attempt.is_selected and self._selection is not None:
                self._selection = self._selection._replace(phase=Phase.RESTORING)
            self._current = attempt
            return attempt

    def initialized(self, attempt: Attempt, session_id: str, *, is_resumable: bool | None) -> bool:
        """``system/init`` came; False if the id is not the one that was attempted, and the turn must end.

        Nothing is captured before ``succeeded``. A session that cannot be resumed is not to be captured at all, and
        ends the identity that this turn carried, whatever becomes of the turn.
        """
        with self._lock:
            if not self._is_newest(attempt):
                return False
            if is_resumable is False:
                self._invalidate(attempt)
                self._current = None
                return True
            return self._matches(attempt, session_id)

    def succeeded(self, attempt: Attempt, session_id: str) -> bool:
        """The turn ended well in this session, which is active from now on; False if that counts for nothing."""
        with self._lock:
            if not self._is_newest(attempt) or not self._matches(attempt, session_id):
                return False
            self._current = None
            self._active = session_id
            if attempt.is_selected:
                self._selection = None
            return True

    def failed(self, attempt: Attempt, failure: SessionFailure | None = None) -> None:
        """The turn ended badly; only a structured failure of its session says anything about that."""
        with self._lock:
            if not self._is_newest(attempt):
                return
            self._current = None
            if failure is not None and failure.is_of_session:
                self._release(attempt, failure)
            else:
                self._back_to_selected()

    def cancelled(self, attempt: Attempt) -> None:
        """The turn was cancelled; a structured failure that came before it was reported by then."""
        self.failed(attempt)

    def _attempt(self) -> Attempt:
        chosen = self._selection
        if chosen is not None and chosen.phase is not Phase.FAILED:
            return Attempt(self._generation, chosen.session_id, is_selected=True)
        return Attempt(self._generation, self._active)

    def _advance(self) -> None:
        self._generation += 1
        self._current = None

    def _is_newest(self, attempt: Attempt) -> bool:
        return self._current is not None and attempt == self._current

    def _matches(self, attempt: Attempt, session_id: str) -> bool:
        """An id that is not the attempted one ends the attempt, and changes nothing else."""
        if attempt.session_id in (None, session_id):
            return True
        self._current = None
        message = f"core answered for session {session_id}, not {attempt.session_id}"
        self._release(attempt, SessionFailure("scope_mismatch", LOAD, message))
        return False

    def _release(self, attempt: Attempt, failure: SessionFailure) -> None:
        if not attempt.is_selected:
            self._invalidate(attempt)
        elif self._selection is not None:
            self._selection = self._selection._replace(phase=Phase.FAILED, failure=failure)

    def _invalidate(self, attempt: Attempt) -> None:
        if attempt.is_selected:
            self._selection = None
        if attempt.session_id is not None and attempt.session_id == self._active:
            self._active = None

    def _back_to_selected(self) -> None:
        if self._selection is not None and self._selection.phase is Phase.RESTORING:
            self._selection = self._selection._replace(phase=Phase.SELECTED)


class Lease:
    """What may be done while nothing else changes."""

    def __init__(self, state: ResumeState) -> None:
        self._state = state

    def select(self, session_id: str) -> None:
        """Commits a selection; it takes the place of another."""
        self._state._advance()
        self._state._selection = Selection(session_id)

    def protected_ids(self) -> tuple[str, ...]:
        """The sessions that a clear under this lease must leave alone."""
        chosen = self._state._selection
        found = (self._state._active, None if chosen is None else chosen.session_id)
        return tuple(dict.fromkeys(id for id in found if id is not None))
