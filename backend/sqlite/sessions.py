"""Sessions as directories of files, and snapshots beside them: ``SessionFiles`` without ``append`` and ``sync``."""

from collections.abc import Sequence

import msgspec

from backend.entries import SessionHeader
from backend.errors import SessionAlreadyExistsError
from backend.facts import later, stream_size
from backend.lines import text_of
from backend.log_contract import (
    branch_row,
    child_header,
    first_row,
    found,
    judge_branch,
    listed_key,
    new_header,
    scope_of,
)
from backend.rows import NO_SOURCE, Removed, Row, Session, Snapshot, Source, Stream
from backend.sqlite import rows
from backend.sqlite.core import atomic, growing
from backend.sqlite.logs import sweep
from backend.sqlite.runs import Runs
from backend.sqlite.segments import Checkpoint


class Sessions(Runs):
    """Live and archived sessions."""

    def session(self, owner: int, name: str) -> Session | None:
        return self._session_of(self._database.one(rows.SESSION_BY_NAME, owner, name))

    def sessions(self, owner: int, after: int = 0, limit: int = 1000) -> Sequence[Session]:
        found_rows = self._database.all(rows.LIVE_SESSIONS, owner, after, limit)
        page = [session for row in found_rows if (session := self._session_of(row))]
        if not page:
            self._require_owner(owner)
        return page

    def listing(self, owner: int, after: int = 0, limit: int = 1000) -> Sequence[tuple[int, str, int, int]]:
        page = self._database.all(rows.LISTING, owner, after, limit)
        if not page:
            self._require_owner(owner)
        waiting = self._waiting.sessions
        return [
            (id, name, uid, waiting[id].session.updated_at if id in waiting else updated_at)
            for id, name, uid, updated_at in page
        ]

    @growing
    def create_session(
        self, owner: int, name: str, uid: int, session_id: str | None = None, source: Source = NO_SOURCE
    ) -> Session:
        header = new_header(session_id, self._now_ms(), source)
        scope = scope_of(self._require_owner(owner).space)
        self._refuse_place(owner, name, header.session_id)
        return self._insert(self._first(header, self._logs.add(), owner, name, uid, scope), header)

    @growing
    def branch_session(self, session: int, at: int, name: str, session_id: str | None = None) -> Session:
        parent = self._require_session(session)
        judge_branch(parent, at)
        owner = found(parent.owner, "agent or model of the session")
        header = child_header(self._header(parent), at, session_id, self._now_ms())
        self._refuse_place(owner, name, header.session_id)
        return self._insert_branch(header, parent, at, owner=owner, name=name, uid=parent.uid, scope=parent.scope)

    @atomic
    def delete_session(self, session: int) -> Removed:
        row = self._require_session(session)
        removed = Removed(False)
        if row.archive is not None:
            self._touch_directory(row.archive)
        elif row.owner is not None:
            removed = self._unlist(row.owner, row)
            if self._require_owner(row.owner).current == row.name:
                self._set_current(row.owner, None)
        self._database.run("DELETE FROM session WHERE id = ?", (session,))
        self._database.run("INSERT INTO unused_log (log) VALUES (?)", (session,))
        sweep(self._database.connection)
        self._sessions.pop(session, None)
        self._tails.pop(session, None)
        return removed

    def read_stream(self, session: int, stream: Stream, offset: int, size: int) -> bytes:
        row = self._require_session(session)
        stop = min(stream_size(row, stream), offset + size)
        waiting = self._waiting.sessions.get(session)
        if waiting is None:
            return self._logs.read(session, stream, offset, stop)
        merged = self._logs.read(session, stream, offset, min(stop, stream_size(waiting.merged, stream)))
        return merged + waiting.read(stream, offset, stop)

    def latest(self, session: int) -> bytes:
        row = self._require_session(session)
        if row.latest_n is None:
            return b""
        [entry] = self.rows(session, row.latest_n, 1)
        return f"{text_of(entry.raw)}\n".encode()

    def rows(self, session: int, start: int = 0, limit: int = 1000) -> Sequence[Row]:
        row = self._require_session(session)
        stop = min(row.n, start + limit)
        waiting = self._waiting.sessions.get(session)
        if waiting is None:
            return list(self._logs.rows(session, start, stop))
        return [*self._logs.rows(session, start, min(stop, waiting.merged.n)), *waiting.rows(start, stop)]

    def snapshot(self, session: int, name: str) -> Snapshot | None:
        self._require_session(session)
        row = self._database.one(
            "SELECT name, length(content), mtime FROM snapshot WHERE session = ? AND name = ? AND content IS NOT NULL",
            session,
            name,
        )
        return None if row is None else Snapshot(*row)

    def read_snapshot(self, session: int, name: str) -> bytes:
        sql = "SELECT content FROM snapshot WHERE session = ? AND name = ? AND content IS NOT NULL"
        [content] = found(self._database.one(sql, session, name), "snapshot")
        return bytes(content)

    def write_snapshot(self, session: int, name: str, content: bytes) -> Snapshot:
        self._require_room(len(content))
        return self._write_snapshot(session, name, content)

    @atomic
    def _write_snapshot(self, session: int, name: str, content: bytes) -> Snapshot:
        self._require_session(session)
        old = self._database.one("SELECT mtime FROM snapshot WHERE session = ? AND name = ?", session, name)
        snapshot = Snapshot(name, len(content), later(old[0] if old else 0, self._clock()))
        self._database.run(_WRITE_SNAPSHOT, (session, name, snapshot.mtime, content))
        return snapshot

    @atomic
    def remove_snapshot(self, session: int, name: str) -> None:
        sql = "UPDATE snapshot SET content = NULL WHERE session = ? AND name = ? AND content IS NOT NULL"
        found(self._database.run(sql, (session, name)).rowcount or None, "snapshot")

    # making sessions, inside a transaction

    def _first(
        self, header: SessionHeader, log: int, owner: int | None = None, name: str = "", uid: int = 0, scope: str = ""
    ) -> Session:
        return first_row(
            header,
            id=log,
            owner=owner,
            name=name,
            uid=uid,
            scope=scope or scope_of(None),
            seq=self._next_seq(),
            now_ns=self._clock(),
        )

    def _insert(self, session: Session, header: SessionHeader) -> Session:
        self._database.run(rows.INSERT_SESSION, rows.new_session(session, listed_key(session), header))
        self._remember(session)
        if session.owner is not None:
            self._list_new(session.owner, session)
        return session

    def _insert_branch(
        self,
        header: SessionHeader,
        parent: Session,
        at: int,
        *,
        owner: int | None = None,
        name: str = "",
        uid: int = 0,
        scope: str = "",
    ) -> Session:
        if at == parent.n:
            base, time = self._tail(parent.id).end, parent.updated_at
        else:
            base, time = self._logs.checkpoint(parent.id, at)
        made = self._first(header, self._logs.add(parent.id, base), owner, name, uid, scope)
        then = parent if at == parent.n else self._then(made, parent.id, base, time)
        return self._insert(branch_row(made, then), header)

    def _then(self, made: Session, log: int, base: Checkpoint, time: int) -> Session:
        """What the files of a log's first ``base.n`` entries say, in a row that is otherwise ``made``."""
        if base.n == 0:
            return made
        latest, state, cwd, meta = (
            self._logs.values(log, n) for n in (base.latest_n, base.state_n, base.cwd_n, base.meta_n)
        )
        return msgspec.structs.replace(
            made,
            n=base.n,
            updated_at=time,
            messages_size=base.messages,
            events_size=base.events,
            latest_n=base.latest_n,
            latest_size=latest.latest_size or 0,
            state=state.state or made.state,
            cwd=cwd.cwd or made.cwd,
            cwd_seq=made.seq if cwd.cwd else 0,
            meta=meta.meta or made.meta,
        )

    def _refuse_place(self, owner: int, name: str, session_id: str) -> None:
        if self.session(owner, name) is not None:
            raise SessionAlreadyExistsError(name)
        if self._find(session_id) is not None:
            raise SessionAlreadyExistsError(session_id)

    def _find(self, session_id: str) -> Session | None:
        try:
            row = self._database.one(rows.SESSION_BY_SESSION_ID, session_id)
        except UnicodeEncodeError:
            # A lone surrogate is in no stored id.
            return None
        return self._session_of(row)

    def _header(self, session: Session) -> SessionHeader:
        return rows.header(self._database.one(f"{rows.HEADER} WHERE id = ?", session.id))

    def _now_ms(self) -> int:
        return self._clock() // 1_000_000


_WRITE_SNAPSHOT = (
    "INSERT INTO snapshot (session, name, mtime, content) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (session, name) DO UPDATE SET mtime = excluded.mtime, content = excluded.content"
)
