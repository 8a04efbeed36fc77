"""Sessions as directories of files: ``SessionFiles``, and the primitives of the log contract (spec 2.9).

A session's log is opened when somebody first asks for its row. Branches copy: plain files cannot share a prefix, but
where the file system can (reflinks), the copy shares its blocks.
"""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from backend.entries import SessionHeader
from backend.errors import (
    CtxError,
    InvalidValue,
    Missing,
    SessionAlreadyExistsError,
    StoreFailed,
    StoreFull,
    UnprovableHistory,
)
from backend.facts import later
from backend.jsonl.catalogue import Catalogue, OwnerRecord, RunRecord, SessionRecord
from backend.jsonl.discovery import Discovery
from backend.jsonl.disk import make_directories, read_small, regular, remove_if_there, replace, reported
from backend.jsonl.foreign import with_values
from backend.jsonl.handles import ORDER, STORE
from backend.jsonl.log import SessionLog, Workshop
from backend.jsonl.making import building_name, fill_branch, hide_session, make_session
from backend.jsonl.opening import recorded_row
from backend.jsonl.order import stored_header
from backend.log_contract import (
    LogContract,
    child_header,
    entry_times,
    found,
    judge_append,
    judge_branch,
    new_header,
    scope_of,
)
from backend.names import is_session_name
from backend.rows import NO_SOURCE, Append, Appended, Line, Removed, Row, RunLine, Session, Snapshot, Source, Stream

_SNAPSHOTS = ("AGENTS.md", "SKILLS.md")
_MAX_SNAPSHOT = 16 << 20


class Sessions(Discovery, LogContract):
    """Every session of the store."""

    def __init__(self, directory: str, catalogue: Catalogue, shared: Workshop) -> None:
        super().__init__(directory, catalogue, shared)
        self._logs: dict[int, SessionLog] = {}
        self._failure: str | None = None
        self._running = {record.session: record for record in catalogue.all(RunRecord)}

    def session(self, owner: int, name: str) -> Session | None:
        if self._catalogue.get(OwnerRecord, owner) is None:
            return None
        id = self._held(owner).names.get(name)
        return None if id is None else self._log(id).row

    def session_by_id(self, session: int) -> Session | None:
        return self._log(session).row if self._session_record(session) else None

    def sessions(self, owner: int, after: int = 0, limit: int = 1000) -> Sequence[Session]:
        return [self._log(id).row for id in self._held(owner).page(after, limit)]

    def listing(self, owner: int, after: int = 0, limit: int = 1000) -> Sequence[tuple[int, str, int, int]]:
        return [(row.id, row.name, row.uid, row.updated_at) for row in self.sessions(owner, after, limit)]

    def create_session(
        self, owner: int, name: str, uid: int, session_id: str | None = None, source: Source = NO_SOURCE
    ) -> Session:
        header = new_header(session_id, self._now_ms(), source)
        self._refuse_place(owner, name, header.session_id)
        scope = scope_of(self._held(owner).row.space)
        record = SessionRecord(self._catalogue.next_id(), header.session_id, name, uid, scope, owner)
        return self._make(record, header)

    def branch_session(self, session: int, at: int, name: str, session_id: str | None = None) -> Session:
        parent = self._require_session(session)
        judge_branch(parent, at)
        header = child_header(self._header(parent), at, session_id, self._now_ms())
        owner = found(parent.owner, "agent or model of the session")
        self._refuse_place(owner, name, header.session_id)
        record = SessionRecord(self._catalogue.next_id(), header.session_id, name, parent.uid, parent.scope, owner)
        return self._make(record, header, branch_of=self._log(session))

    def delete_session(self, session: int) -> Removed:
        row, record = self._require_session(session), found(self._catalogue.get(SessionRecord, session), "session")
        directory = self._log(session).directory
        if row.archive is None and row.owner is not None:
            self._order(self._held(row.owner))
        self._shared.cache.forget(directory)
        self.forget_run(session)
        with reported():
            hidden = hide_session(directory, session)
            self._catalogue.drop(session)
        self._shared.durability.add((os.path.dirname(directory),))
        del self._logs[session], self._ids[record.session_id]
        removed = Removed(False)
        if row.archive is not None:
            self._unshelve(row.archive, row.name)
        elif row.owner is not None:
            removed = self._unlist(row)
        shutil.rmtree(hidden, ignore_errors=True)
        return removed

    def context_directory(self, session: int) -> str | None:
        record = found(self._session_record(session), "session")
        return f"{os.path.relpath(self._session_path(record), self._directory)}/context"

    def read_stream(self, session: int, stream: Stream, offset: int, size: int) -> bytes:
        log = self._log(session)
        with reported():
            return log.read(stream, offset, size)

    def latest(self, session: int) -> bytes:
        with reported():
            return self._log(session).latest()

    def rows(self, session: int, start: int = 0, limit: int = 1000) -> Sequence[Row]:
        with reported():
            return self._log(session).rows(start, start + limit)

    def index_runs(self, session: int) -> bool:
        log = self._log(session)
        with reported():
            return log.index_runs()

    def starts(self, session: int, client: str) -> Sequence[RunLine]:
        log = self._log(session)
        with reported():
            return log.runs().starts(client, log.row.n)

    def run_lines(self, session: int, run: str) -> Sequence[RunLine]:
        log = self._log(session)
        with reported():
            return log.runs().lines(run, log.row.n)

    def live_runs(self) -> Sequence[tuple[int, str]]:
        records = ((self._session_record(live.session), live.run) for live in self._running.values())
        return [(session.id, run) for session, run in records if session and session.archive is None]

    def forget_run(self, session: int) -> None:
        if (record := self._running.get(session)) is not None:
            with reported():
                self._catalogue.drop(record.id)
            del self._running[session]

    def append(self, batch: Sequence[Append]) -> Sequence[Appended | CtxError]:
        results: list[Appended | CtxError] = []
        for append in batch:
            try:
                results.append(self._append(append))
            except CtxError as refusal:
                if isinstance(refusal, StoreFull | StoreFailed):
                    self._failure = str(refusal)
                results.append(refusal)
        return results

    def snapshot(self, session: int, name: str) -> Snapshot | None:
        stat = regular(self._snapshot_path(session, name))
        if stat is None or stat.st_size > _MAX_SNAPSHOT:
            return None
        return Snapshot(name, stat.st_size, max(1, stat.st_mtime_ns))

    def read_snapshot(self, session: int, name: str) -> bytes:
        return found(read_small(self._snapshot_path(session, name), _MAX_SNAPSHOT), "snapshot")

    def write_snapshot(self, session: int, name: str, content: bytes) -> Snapshot:
        path, old = self._snapshot_path(session, name), self.snapshot(session, name)
        mtime = later(old.mtime if old else 0, self._shared.clock.tick())
        with reported():
            replace(path, content, mtime)
        self._shared.durability.add((path, os.path.dirname(path)))
        return Snapshot(name, len(content), mtime)

    def remove_snapshot(self, session: int, name: str) -> None:
        path = self._snapshot_path(session, name)
        found(regular(path), "snapshot")
        with reported():
            remove_if_there(path)
        self._shared.durability.add((os.path.dirname(path),))

    def _append(self, append: Append) -> Appended:
        log = self._log(append.session) if self.session_by_id(append.session) else None
        before = judge_append(log.row if log else None, append)
        if log is None or not append.lines:
            return Appended(before)
        if before.owner is not None:
            self._order(self._held(before.owner))
        # The time of an entry is never later than the mtime that it gives its file.
        times, now = entry_times(append, self._now_ms()), self._shared.clock.tick()
        with reported():
            seq = self._catalogue.next_seq()
        files = self._write(log, append, times, seq, now)
        self._failure = None
        listed, keys = self._relist(log.row)
        selected = append.begins is not None and self._select(log.row)
        return Appended(log.row, files, listed, selected, *keys)

    def _write(self, log: SessionLog, append: Append, times: Sequence[int], seq: int, now_ns: int) -> frozenset[str]:
        """Appends the lines, and records what run they begin or end.

        A run that is recorded, and whose start is not, never began.
        """
        if append.begins is not None:
            self.forget_run(append.session)
            record = RunRecord(self._catalogue.next_id(), append.session, append.begins)
            with reported():
                self._catalogue.put(record)
            self._running[append.session] = record
        files = log.append(append.lines, times, seq, now_ns)
        live = self._running.get(append.session)
        if live is not None and any(line.key == "done" and line.run == live.run for line in append.lines):
            # The lines are stored; a record that stays is one of a run that is done.
            with suppress(CtxError):
                self.forget_run(append.session)
        return files

    def _select(self, session: Session) -> bool:
        """Makes the session its owner's current one; whether it was not."""
        if session.owner is None or self._held(session.owner).row.current == session.name:
            return False
        with suppress(OSError):
            self._set_current(self._held(session.owner), session.name)
        return True

    def _make(
        self,
        record: SessionRecord,
        header: SessionHeader,
        lines: Sequence[Line] = (),
        times: Sequence[int] = (),
        branch_of: SessionLog | None = None,
    ) -> Session:
        """A new session, whole or not at all."""
        if branch_of and branch_of.row.fault:
            raise UnprovableHistory(f"history cannot be proven, it has no branches: {branch_of.row.fault}")
        if record.owner is not None:
            self._order(self._held(record.owner))
        directory = self._session_path(record)
        building = building_name(directory, record.id)
        try:
            with reported():
                log = self._build(record, header, building, branch_of)
            if lines:
                log.append(lines, times, self._catalogue.next_seq(), self._shared.clock.tick())
            with reported():
                self._place(log, record, directory)
        except CtxError:
            self._shared.cache.forget(building)
            shutil.rmtree(building, ignore_errors=True)
            raise
        self._logs[record.id] = log
        self._ids[record.session_id] = record.id
        if record.owner is not None:
            self._enlist(log.row)
        return log.row

    def _build(
        self, record: SessionRecord, header: SessionHeader, directory: str, branch_of: SessionLog | None
    ) -> SessionLog:
        seq, now = self._catalogue.next_seq(), self._shared.clock.tick()
        blank = self._blank(record, header, seq, now)
        make_directories(os.path.dirname(directory))
        if branch_of is None:
            make_session(directory, blank, stored_header(header, seq))
        else:
            stored = branch_of.branch_header(header, seq)
            make_session(directory, blank, stored)
            fill_branch(directory, stored, branch_of, header.at or 0, now)
        return SessionLog(directory, blank, self._shared)

    def _place(self, log: SessionLog, record: SessionRecord, directory: str) -> None:
        building = log.directory
        os.rename(building, directory)
        log.moved(directory, log.row)
        try:
            self._catalogue.put(record)
        except OSError:
            os.rename(directory, building)
            raise
        self._synced(directory)
        self._shared.durability.add((f"{directory}/{STORE}", *log.files()))

    def _move(self, session: Session, directory: str, record: SessionRecord) -> None:
        """Renames a session's directory and records where it is (``OSError``)."""
        log, before = self._log(session.id), self._catalogue.get(SessionRecord, session.id)
        old = log.directory
        # The record comes first: if we die before the rename, the next opening finds the session where it was.
        self._catalogue.put(record)
        try:
            os.rename(old, directory)
        except OSError:
            if before:
                self._catalogue.put(before)
            raise
        log.moved(directory, msgspec.structs.replace(log.row, archive=record.archive))
        self._shared.durability.add((directory, f"{directory}/{STORE}", *log.files()))
        self._shared.durability.add(f"{directory}/{name}" for name in _SNAPSHOTS)

    def _refuse_place(self, owner: int, name: str, session_id: str) -> None:
        held = self._held(owner)
        if not is_session_name(name):
            raise InvalidValue(f"{name!r} is no name of a session")
        if name in held.names:
            raise SessionAlreadyExistsError(name)
        if self._find(session_id) is not None:
            raise SessionAlreadyExistsError(session_id)

    def _log(self, session: int) -> SessionLog:
        """The log of a session that is there; ``Missing``."""
        log = self._logs.get(session)
        if log is None:
            record = found(self._session_record(session), "session")
            with reported():
                path, blank = self._session_path(record), self._blank_foreign(record)
                log = self._logs[session] = SessionLog(path, blank, self._shared)
            self._catalogue.saw_seq(log.row.seq)
        return log

    def _facts(self, session: int) -> Session:
        if session not in self._logs:
            record = found(self._catalogue.get(SessionRecord, session), "session")
            path, blank = self._session_path(record), self._blank_foreign(record)
            with reported():
                row = with_values(path, blank) if regular(f"{path}/{ORDER}") is None else recorded_row(path, blank)
            if row is not None:
                return row
        return self._log(session).row

    def _require_session(self, session: int) -> Session:
        return self._log(session).row

    def _log_bytes(self) -> int:
        """Bytes of all log files, as far as they were looked at."""
        rows = [log.row for log in self._logs.values()]
        return sum(row.messages_size + row.events_size for row in rows)

    def _snapshot_path(self, session: int, name: str) -> str:
        if name not in _SNAPSHOTS:
            raise Missing(f"a session has no snapshot {name!r}")
        return f"{self._log(session).directory}/{name}"

    # the log contract's primitives

    def _now_ms(self) -> int:
        return self._shared.clock.wall_ms()

    def _find(self, session_id: str) -> Session | None:
        id = self._session_id(session_id)
        return None if id is None else self._log(id).row

    def _header(self, session: Session) -> SessionHeader:
        return self._log(session.id).header

    def _headers(self, parent: str | None, limit: int | None) -> Sequence[SessionHeader]:
        self._discover_all()
        headers = (self._log(id).header for id in list(self._ids.values()))
        chosen = [header for header in headers if parent in (None, header.parent)]
        return sorted(chosen, key=lambda header: (-header.created_at, header.session_id))[:limit]

    def _create(self, header: SessionHeader, lines: Sequence[Line], times: Sequence[int]) -> None:
        record = SessionRecord(self._catalogue.next_id(), header.session_id, "", 0, scope_of(None))
        self._make(record, header, lines, times)

    def _branch(self, header: SessionHeader, parent: Session, at: int) -> None:
        record = SessionRecord(self._catalogue.next_id(), header.session_id, "", parent.uid, parent.scope)
        self._make(record, header, branch_of=self._log(parent.id))
