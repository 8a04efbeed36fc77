"""A store that lives in memory: temp sessions and tests (spec 2.9). Implements ``backend.store.Store``.

Nothing survives ``close`` or the process; ``sync`` has nothing to wait for. Branches share their parent's log by
reference, also after the parent was deleted. One thread at a time; no call can fail halfway, as everything that may
be refused is judged first.
"""

import time
from collections.abc import Callable, Sequence

import msgspec

from backend.entries import SessionHeader
from backend.errors import CtxError, SessionAlreadyExistsError
from backend.facts import advance, later
from backend.lines import text_of
from backend.log_contract import (
    LogContract,
    branch_row,
    child_header,
    entry_times,
    first_row,
    found,
    judge_append,
    judge_branch,
    new_header,
    scope_of,
)
from backend.memory.archive import Archive
from backend.memory.definitions import Definitions
from backend.memory.parts import Log
from backend.rows import (
    MAX_RUN_LINES,
    NO_SOURCE,
    Append,
    Appended,
    Line,
    Removed,
    Row,
    RunLine,
    Session,
    Snapshot,
    Source,
    Stream,
)
from backend.run_lines import MAX_STARTS
from backend.store import StoreStatus


class MemoryStore(Archive, Definitions, LogContract):
    """The whole store contract in dictionaries. ``clock``: ns since the epoch."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        super().__init__(clock)
        self._headers_by_id: dict[str, SessionHeader] = {}
        self._ids: dict[str, int] = {}
        self._logs: dict[int, Log] = {}
        self._snapshots: dict[tuple[int, str], tuple[Snapshot, bytes]] = {}

    @property
    def ephemeral(self) -> bool:
        return True

    def status(self) -> StoreStatus:
        live = sum(session.archive is None for session in self._sessions.values())
        size = sum(log.own_bytes for log in self._logs.values())
        return StoreStatus("memory", live, len(self._spaces), size, None)

    def sync(self) -> None:
        """Nothing to wait for."""

    def maintain(self) -> None:
        """Nothing is put off."""

    def close(self) -> None:
        """Nothing to let go of."""

    # sessions

    def session(self, owner: int, name: str) -> Session | None:
        index = self._index.get(owner)
        return None if index is None or name not in index.names else self._sessions[index.names[name]]

    def session_by_id(self, session: int) -> Session | None:
        return self._sessions.get(session)

    def sessions(self, owner: int, after: int = 0, limit: int = 1000) -> Sequence[Session]:
        self._require_owner(owner)
        return self._index[owner].rows.page(after, limit)

    def listing(self, owner: int, after: int = 0, limit: int = 1000) -> Sequence[tuple[int, str, int, int]]:
        return [(row.id, row.name, row.uid, row.updated_at) for row in self.sessions(owner, after, limit)]

    def create_session(
        self, owner: int, name: str, uid: int, session_id: str | None = None, source: Source = NO_SOURCE
    ) -> Session:
        header = new_header(session_id, self._now_ms(), source)
        self._refuse_place(owner, name, header.session_id)
        scope = scope_of(self._require_owner(owner).space)
        return self._add(self._row(header, owner, name, uid, scope), header, None)

    def branch_session(self, session: int, at: int, name: str, session_id: str | None = None) -> Session:
        parent = self._require_session(session)
        judge_branch(parent, at)
        header = child_header(self._header(parent), at, session_id, self._now_ms())
        owner = found(parent.owner, "agent or model of the session")
        self._refuse_place(owner, name, header.session_id)
        return self._add_branch(self._row(header, owner, name, parent.uid, parent.scope), header, parent, at)

    def delete_session(self, session: int) -> Removed:
        row = self._require_session(session)
        removed = Removed(False)
        if row.archive is not None:
            self._archived[row.archive].pop(session)
            del self._archived_ids[row.archive, row.name]
            self._touch_directory(row.archive)
        elif row.owner is not None:
            removed = self._unlist(row.owner, row)
            owner = self._require_owner(row.owner)
            if owner.current == row.name:
                self._set_current(owner, None)
        del self._sessions[session], self._logs[session], self._ids[row.session_id], self._headers_by_id[row.session_id]
        self.forget_run(session)
        for key in [key for key in self._snapshots if key[0] == session]:
            del self._snapshots[key]
        return removed

    def read_stream(self, session: int, stream: Stream, offset: int, size: int) -> bytes:
        self._require_session(session)
        return self._logs[session].read(stream, offset, size)

    def latest(self, session: int) -> bytes:
        row = self._require_session(session)
        if row.latest_n is None:
            return b""
        return f"{text_of(self._logs[session].row(row.latest_n).raw)}\n".encode()

    def rows(self, session: int, start: int = 0, limit: int = 1000) -> Sequence[Row]:
        row = self._require_session(session)
        return [self._logs[session].row(n) for n in range(start, min(row.n, start + limit))]

    def index_runs(self, session: int) -> bool:
        self._require_session(session)
        return False

    def starts(self, session: int, client: str) -> Sequence[RunLine]:
        self._require_session(session)
        return self._logs[session].starts(client)[:MAX_STARTS]

    def run_lines(self, session: int, run: str) -> Sequence[RunLine]:
        self._require_session(session)
        return self._logs[session].run_lines(run)[:MAX_RUN_LINES]

    def append(self, batch: Sequence[Append]) -> Sequence[Appended | CtxError]:
        return [self._append(append) for append in batch]

    def _append(self, append: Append) -> Appended | CtxError:
        try:
            before = judge_append(self._sessions.get(append.session), append)
        except CtxError as refusal:
            return refusal
        if not append.lines:
            return Appended(before)
        now = self._clock()
        times = entry_times(append, now // 1_000_000)
        after, files = advance(before, append.lines, time_ms=times[-1], now_ns=now, seq=self._next_seq())
        self._logs[after.id].extend(append.lines, times, after)
        self._sessions[after.id] = after
        appended = self._relist(Appended(after, files))
        if any(line.key == "done" and line.run == self._live.get(after.id) for line in append.lines):
            self.forget_run(after.id)
        return appended if append.begins is None else self._begin(appended, append.begins)

    def _begin(self, appended: Appended, run: str) -> Appended:
        session = appended.session
        self._live[session.id] = run
        if session.owner is None or self._require_owner(session.owner).current == session.name:
            return appended
        self._set_current(self._require_owner(session.owner), session.name)
        return msgspec.structs.replace(appended, selected=True)

    def _relist(self, appended: Appended) -> Appended:
        """Brings the owner's index up to a session that changed or is new."""
        session = appended.session
        if session.owner is None:
            return appended
        change = self._index[session.owner].put(session)
        new, changed, gone = self._remap(session.owner, change)
        if change.listed:
            self._note_listing(session.owner, 0)
        return Appended(session, appended.files, change.listed, False, new, changed, gone)

    def _row(self, header: SessionHeader, owner: int | None, name: str, uid: int, scope: str) -> Session:
        return first_row(
            header,
            id=self._next_id(),
            owner=owner,
            name=name,
            uid=uid,
            scope=scope,
            seq=self._next_seq(),
            now_ns=self._clock(),
        )

    def _add_branch(self, made: Session, header: SessionHeader, parent: Session, at: int) -> Session:
        then = self._logs[parent.id].at(at)
        return self._add(branch_row(made, then), header, self._logs[parent.id])

    def _add(self, row: Session, header: SessionHeader, base: Log | None) -> Session:
        self._sessions[row.id] = row
        self._logs[row.id] = Log(row, base)
        self._ids[header.session_id] = row.id
        self._headers_by_id[header.session_id] = header
        if row.owner is not None:
            self._relist(Appended(row))
            self._note_listing(row.owner, len(row.name) + 1)
            owner = self._require_owner(row.owner)
            if owner.current is None:
                self._set_current(owner, row.name)
        return row

    def _refuse_place(self, owner: int, name: str, session_id: str) -> None:
        self._require_owner(owner)
        if self.session(owner, name) is not None:
            raise SessionAlreadyExistsError(name)
        if session_id in self._ids:
            raise SessionAlreadyExistsError(session_id)

    def _require_session(self, session: int) -> Session:
        return found(self._sessions.get(session), "session")

    # snapshots

    def snapshot(self, session: int, name: str) -> Snapshot | None:
        self._require_session(session)
        stored = self._snapshots.get((session, name))
        return None if stored is None else stored[0]

    def read_snapshot(self, session: int, name: str) -> bytes:
        return found(self._snapshots.get((session, name)), "snapshot")[1]

    def write_snapshot(self, session: int, name: str, content: bytes) -> Snapshot:
        old = self.snapshot(session, name)
        snapshot = Snapshot(name, len(content), later(old.mtime if old else 0, self._clock()))
        self._snapshots[session, name] = (snapshot, content)
        return snapshot

    def remove_snapshot(self, session: int, name: str) -> None:
        found(self._snapshots.pop((session, name), None), "snapshot")

    # the log contract's primitives

    def _now_ms(self) -> int:
        return self._clock() // 1_000_000

    def _find(self, session_id: str) -> Session | None:
        id = self._ids.get(session_id)
        return None if id is None else self._sessions[id]

    def _header(self, session: Session) -> SessionHeader:
        return self._headers_by_id[session.session_id]

    def _headers(self, parent: str | None, limit: int | None) -> Sequence[SessionHeader]:
        chosen = [header for header in self._headers_by_id.values() if parent in (None, header.parent)]
        return sorted(chosen, key=lambda header: (-header.created_at, header.session_id))[:limit]

    def _create(self, header: SessionHeader, lines: Sequence[Line], times: Sequence[int]) -> None:
        row = self._add(self._row(header, None, "", 0, scope_of(None)), header, None)
        self._append(Append(row.id, lines, time=times))

    def _branch(self, header: SessionHeader, parent: Session, at: int) -> None:
        self._add_branch(self._row(header, None, "", parent.uid, parent.scope), header, parent, at)
