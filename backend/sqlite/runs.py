"""Runs: what the log says of them, and which are live (``SessionFiles``, spec 3.3)."""

from collections.abc import Callable, Sequence

import msgspec

from backend.errors import CtxError
from backend.rows import MAX_RUN_LINES, Append, Appended, RunLine, Session
from backend.run_lines import MAX_STARTS, run_lines
from backend.sqlite import rows
from backend.sqlite.archive import Archive
from backend.sqlite.core import atomic


class Runs(Archive):
    """Found by index; lines that wait are few, and are looked at."""

    def index_runs(self, session: int) -> bool:
        self._require_session(session)
        return False

    def starts(self, session: int, client: str) -> Sequence[RunLine]:
        row = self._require_session(session)
        found = self._logs.starts(session, client, self._merged_n(row))
        return [*found, *self._waiting_lines(session, lambda line: line.client == client)][:MAX_STARTS]

    def run_lines(self, session: int, run: str) -> Sequence[RunLine]:
        row = self._require_session(session)
        found = self._logs.run_lines(session, run, self._merged_n(row))
        return [*found, *self._waiting_lines(session, lambda line: line.run == run)][:MAX_RUN_LINES]

    def live_runs(self) -> Sequence[tuple[int, str]]:
        # A done that waits is seen when it is merged.
        self._settle()
        return [(session, run) for session, run in self._database.all("SELECT session, run FROM live_run")]

    @atomic
    def forget_run(self, session: int) -> None:
        self._database.run("DELETE FROM live_run WHERE session = ?", (session,))

    def _merged_n(self, row: Session) -> int:
        """The number of entries that are in the rows of a session's log."""
        waiting = self._waiting.sessions.get(row.id)
        return row.n if waiting is None else waiting.merged.n

    def _waiting_lines(self, session: int, wanted: Callable[[RunLine], bool]) -> list[RunLine]:
        waiting = self._waiting.sessions.get(session)
        return [] if waiting is None else list(filter(wanted, run_lines(waiting.lines, waiting.merged.n)))

    def _note_run(self, append: Append, result: Appended | CtxError) -> Appended | CtxError:
        """The run that an append begins, inside its transaction, when its lines are in the rows of their session."""
        if append.begins is None or isinstance(result, CtxError):
            return result
        self._database.run(rows.BEGIN_RUN, (append.session, append.begins))
        owner = None if result.session.owner is None else self._require_owner(result.session.owner)
        if owner is None or owner.current == result.session.name:
            return result
        self._set_current(owner.id, result.session.name)
        return msgspec.structs.replace(result, selected=True)
