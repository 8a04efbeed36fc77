"""``archived_sessions/`` of a space: ``ArchiveFiles`` (spec 4.4)."""

from collections.abc import Sequence

from backend.errors import Busy, Exists, NotEmpty
from backend.log_contract import found
from backend.rows import ArchiveDirectory, Removed, Session
from backend.sqlite import rows
from backend.sqlite.core import atomic, growing
from backend.sqlite.index import Index


class Archive(Index):
    """Archive directories and the sessions in them."""

    def archive_directory(self, space: str, parent: int | None, name: str) -> ArchiveDirectory | None:
        sql = f"{rows.DIRECTORY} WHERE space = ? AND ifnull(parent, 0) = ? AND name = ?"
        return rows.made(ArchiveDirectory, self._database.one(sql, space, parent or 0, name))

    def archive_directory_by_id(self, directory: int) -> ArchiveDirectory | None:
        return rows.made(ArchiveDirectory, self._database.one(f"{rows.DIRECTORY} WHERE id = ?", directory))

    def archive_directories(self, space: str, parent: int | None) -> Sequence[ArchiveDirectory]:
        sql = f"{rows.DIRECTORY} WHERE space = ? AND ifnull(parent, 0) = ? ORDER BY id"
        return [ArchiveDirectory(*row) for row in self._database.all(sql, space, parent or 0)]

    @growing
    def add_archive_directory(self, space: str, parent: int | None, name: str, uid: int) -> ArchiveDirectory:
        found(self.space(space), "space")
        if parent is not None:
            self._require_directory(parent)
        self._refuse_taken(space, parent, name)
        values = (space, parent, name, uid, self._clock())
        sql = "INSERT INTO archive_directory (space, parent, name, uid, mtime) VALUES (?, ?, ?, ?, ?)"
        row = ArchiveDirectory(self._database.insert(sql, *values), *values)
        if parent is not None:
            self._touch_directory(parent)
        return row

    @atomic
    def remove_archive_directory(self, directory: int) -> None:
        row = self._require_directory(directory)
        if self._database.one(_HELD, directory) is not None:
            raise NotEmpty(f"{row.name} is not empty")
        self._database.run("DELETE FROM archive_directory WHERE id = ?", (directory,))
        if row.parent is not None:
            self._touch_directory(row.parent)

    @growing
    def archive_session(self, session: int, directory: int) -> Removed:
        row = self._require_session(session)
        target = self._require_directory(directory)
        if row.archive is not None or row.owner is None:
            raise Busy("only a live session can be archived")
        if row.state == "active" or row.name in ("default", self._require_owner(row.owner).current):
            raise Busy("an active, default or current session is not archived")
        self._refuse_taken(target.space, directory, row.name)
        self._database.run("UPDATE session SET archive = ? WHERE id = ?", (directory, session))
        self._database.run("DELETE FROM live_run WHERE session = ?", (session,))
        removed = self._unlist(row.owner, row)
        self._touch_directory(directory)
        del self._sessions[session]
        return removed

    def archived_session(self, directory: int, name: str) -> Session | None:
        return rows.made(Session, self._database.one(rows.ARCHIVED_SESSION, directory, name))

    def archived_sessions(self, directory: int, after: int = 0, limit: int = 1000) -> Sequence[Session]:
        page = self._database.all(rows.ARCHIVED_SESSIONS, directory, after, limit)
        return [Session(*row) for row in page]

    def _refuse_taken(self, space: str, parent: int | None, name: str) -> None:
        taken = parent is not None and self.archived_session(parent, name) is not None
        if taken or self.archive_directory(space, parent, name) is not None:
            raise Exists(f"{name} exists in the archive")

    def _require_directory(self, directory: int) -> ArchiveDirectory:
        return found(self.archive_directory_by_id(directory), "archive directory")


_HELD = "SELECT 1 FROM archive_directory WHERE parent = ?1 UNION ALL SELECT 1 FROM session WHERE archive = ?1 LIMIT 1"
