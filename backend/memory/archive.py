"""Archived sessions of the memory store: ``ArchiveFiles`` (spec 4.4)."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from backend.errors import Busy, Exists, NotEmpty
from backend.facts import later
from backend.log_contract import found
from backend.memory.parts import IndexChange, Rows
from backend.memory.spaces import Mappings
from backend.rows import ArchiveDirectory, IndexKind, Removed, Session


class Archive(Mappings):
    """``archived_sessions/`` of every space, the rows of all sessions, and which have a live run."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self._sessions: dict[int, Session] = {}
        self._archived: defaultdict[int, Rows[Session]] = defaultdict(Rows)
        self._archived_ids: dict[tuple[int, str], int] = {}
        self._live: dict[int, str] = {}

    def live_runs(self) -> Sequence[tuple[int, str]]:
        return list(self._live.items())

    def forget_run(self, session: int) -> None:
        self._live.pop(session, None)

    def archive_directory(self, space: str, parent: int | None, name: str) -> ArchiveDirectory | None:
        return next((row for row in self.archive_directories(space, parent) if row.name == name), None)

    def archive_directory_by_id(self, directory: int) -> ArchiveDirectory | None:
        return self._directories.get(directory)

    def archive_directories(self, space: str, parent: int | None) -> Sequence[ArchiveDirectory]:
        return [row for row in self._directories.values() if (row.space, row.parent) == (space, parent)]

    def add_archive_directory(self, space: str, parent: int | None, name: str, uid: int) -> ArchiveDirectory:
        found(self.space(space), "space")
        if parent is not None:
            found(self.archive_directory_by_id(parent), "archive directory")
        taken = parent is not None and self.archived_session(parent, name) is not None
        if taken or self.archive_directory(space, parent, name) is not None:
            raise Exists(f"{name} exists")
        row = ArchiveDirectory(self._next_id(), space, parent, name, uid, self._clock())
        self._directories[row.id] = row
        self._touch_directory(parent)
        return row

    def remove_archive_directory(self, directory: int) -> None:
        row = found(self.archive_directory_by_id(directory), "archive directory")
        if self.archive_directories(row.space, directory) or len(self._archived[directory]):
            raise NotEmpty(f"{row.name} is not empty")
        del self._directories[directory], self._archived[directory]
        self._touch_directory(row.parent)

    def archive_session(self, session: int, directory: int) -> Removed:
        row = found(self._sessions.get(session), "session")
        target = found(self.archive_directory_by_id(directory), "archive directory")
        owner = None if row.owner is None else self._owners[row.owner]
        if row.archive is not None or owner is None:
            raise Busy("only a live session can be archived")
        if row.state == "active" or row.name in ("default", owner.current):
            raise Busy("an active, default or current session is not archived")
        if self.archived_session(directory, row.name) or self.archive_directory(target.space, directory, row.name):
            raise Exists(f"{row.name} exists in the archive")
        removed = self._unlist(owner.id, row)
        self._sessions[session] = msgspec.structs.replace(row, archive=directory)
        self.forget_run(session)
        self._archived[directory].put(self._sessions[session])
        self._archived_ids[directory, row.name] = session
        self._touch_directory(directory)
        return removed

    def archived_session(self, directory: int, name: str) -> Session | None:
        id = self._archived_ids.get((directory, name))
        return None if id is None else self._sessions[id]

    def archived_sessions(self, directory: int, after: int = 0, limit: int = 1000) -> Sequence[Session]:
        return self._archived[directory].page(after, limit)

    def _touch_directory(self, directory: int | None) -> None:
        if directory is not None:
            row = self._directories[directory]
            self._directories[directory] = msgspec.structs.replace(row, mtime=later(row.mtime, self._clock()))

    def _unlist(self, owner: int, session: Session) -> Removed:
        """Takes a live session out of its owner's index."""
        mapped = self._unmap(owner, session.name)
        change = self._index[owner].remove(session)
        _, changed, gone = self._remap(owner, change)
        self._note_listing(owner, -len(session.name) - 1)
        by_cwd: IndexKind = "by-cwd"
        return Removed(True, (*mapped, *((by_cwd, key) for key in gone)), tuple((by_cwd, key) for key in changed))

    def _remap(self, owner: int, change: IndexChange) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Makes by-cwd what the index says: the keys that are new, changed and gone."""
        new: list[str] = []
        changed: list[str] = []
        gone: list[str] = []
        for key, holder in change.keys.items():
            before = self.mapping(owner, "by-cwd", key)
            if holder is not None:
                self._map(owner, "by-cwd", key, self._sessions[holder].name)
                (changed if before else new).append(key)
            elif before is not None:
                self.remove_mapping(before.id)
                gone.append(key)
        return tuple(new), tuple(changed), tuple(gone)

    def _note_listing(self, owner: int, growth: int) -> None:
        """Records that index/list changed; with a growth in bytes, that session/ did too."""
        row, now = self._owners[owner], self._clock()
        mtime = later(row.mtime, now) if growth else row.mtime
        size, list_mtime = row.list_size + growth, later(row.list_mtime, now)
        self._change_owner(msgspec.structs.replace(row, mtime=mtime, list_size=size, list_mtime=list_mtime))
