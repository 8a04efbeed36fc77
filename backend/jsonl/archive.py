"""``archived_sessions/`` of every space: ``ArchiveFiles`` over directories (spec 4.4).

A directory below it is a session's if it holds a log, else one of ours to hold more. Each is looked at when somebody
asks for what is in it.
"""

import os
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from backend.errors import Busy, Exists, NotEmpty
from backend.facts import later
from backend.jsonl.catalogue import ArchiveRecord, Catalogue, OwnerRecord, SessionRecord
from backend.jsonl.disk import directories, exists, make_directories, reported, stamp
from backend.jsonl.foreign import has_unreadable_state
from backend.jsonl.index import Index
from backend.jsonl.log import Workshop
from backend.jsonl.making import remove_leftovers
from backend.jsonl.paths import ARCHIVE, component, holds_log, is_component
from backend.log_contract import found
from backend.memory.parts import Rows
from backend.names import is_session_name
from backend.rows import ArchiveDirectory, Removed, Session


class Shelf:
    """What one archive directory holds (or archived_sessions/ itself): directories, and sessions by name."""

    def __init__(self) -> None:
        self.directories: Rows[ArchiveDirectory] = Rows()
        self.sessions: dict[str, int] = {}


class Archive(Index):
    """Archived sessions and the directories that hold them."""

    def __init__(self, directory: str, catalogue: Catalogue, shared: Workshop) -> None:
        super().__init__(directory, catalogue, shared)
        self._shelves: dict[tuple[str, int | None], Shelf] = {}
        self._archived: dict[int, dict[str, int]] = {}
        for session in catalogue.all(SessionRecord):
            if session.archive is not None:
                self._archived.setdefault(session.archive, {})[session.name] = session.id

    @abstractmethod
    def _require_session(self, session: int) -> Session: ...

    @abstractmethod
    def _found_archived(self, directory: ArchiveRecord, path: str, name: str) -> int:
        """The id of an archived session that the catalogue does not know (``OSError``)."""

    @abstractmethod
    def _drop_sessions(self, ids: list[int]) -> None:
        """Forgets sessions whose directories are gone (``OSError``)."""

    @abstractmethod
    def _move(self, session: Session, directory: str, record: SessionRecord) -> None:
        """Renames a session's directory and records where it is (``OSError``)."""

    def archive_directory(self, space: str, parent: int | None, name: str) -> ArchiveDirectory | None:
        return next((row for row in self.archive_directories(space, parent) if row.name == name), None)

    def archive_directory_by_id(self, directory: int) -> ArchiveDirectory | None:
        record = self._catalogue.get(ArchiveRecord, directory)
        if record is None or not self._is_there(record):
            return None
        return self._shelf(record.space, record.parent).directories.get(directory)

    def archive_directories(self, space: str, parent: int | None) -> Sequence[ArchiveDirectory]:
        return list(self._shelf(space, parent).directories)

    def add_archive_directory(self, space: str, parent: int | None, name: str, uid: int) -> ArchiveDirectory:
        found(self.space(space), "space")
        shelf = self._shelf(space, parent)
        if name in shelf.sessions or any(row.name == name for row in shelf.directories):
            raise Exists(f"{name} exists")
        record = ArchiveRecord(self._catalogue.next_id(), space, parent, component(name), uid)
        path = self._archive_path(record)
        with reported():
            make_directories(path)
            stamp(path, self._shared.clock.tick())
            self._synced(path)
            self._catalogue.put(record)
            self._touch(space, parent)
            row = _archive_row(record, path)
        shelf.directories.put(row)
        return row

    def remove_archive_directory(self, directory: int) -> None:
        row = self._require_directory(directory)
        shelf, path = self._shelf(row.space, directory), self._archive_path(row)
        if len(shelf.directories) or shelf.sessions:
            raise NotEmpty(f"{row.name} is not empty")
        with reported():
            os.rmdir(path)
            self._catalogue.drop(directory)
            self._touch(row.space, row.parent)
        self._shared.durability.add((os.path.dirname(path),))
        self._shelf(row.space, row.parent).directories.pop(directory)
        del self._shelves[row.space, directory]

    def archive_session(self, session: int, directory: int) -> Removed:
        row, target = self._require_session(session), self._require_directory(directory)
        record = found(self._catalogue.get(SessionRecord, session), "session")
        if row.archive is not None or row.owner is None:
            raise Busy("only a live session can be archived")
        held = self._held(row.owner)
        if row.state == "active" or row.name in ("default", held.row.current):
            raise Busy("an active, default or current session is not archived")
        if has_unreadable_state(f"{held.path}/{row.name}"):
            raise Busy("the session's state cannot be read: it may be active")
        shelf = self._shelf(target.space, directory)
        path = f"{self._archive_path(target)}/{row.name}"
        if row.name in shelf.sessions or exists(path):
            raise Exists(f"{row.name} exists in the archive")
        self._order(held)
        with reported():
            self._move(row, path, msgspec.structs.replace(record, archive=directory))
            self._touch(target.space, directory)
        self._shared.durability.add((held.path, self._archive_path(target)))
        shelf.sessions[row.name] = session
        return self._unlist(row)

    def archived_session(self, directory: int, name: str) -> Session | None:
        id = self._directory_shelf(directory).sessions.get(name)
        return None if id is None else self._require_session(id)

    def archived_sessions(self, directory: int, after: int = 0, limit: int = 1000) -> Sequence[Session]:
        ids = sorted(id for id in self._directory_shelf(directory).sessions.values() if id > after)
        return [self._require_session(id) for id in ids[:limit]]

    def _unshelve(self, directory: int, name: str) -> None:
        """An archived session has been deleted."""
        del self._directory_shelf(directory).sessions[name]
        with suppress(OSError):
            self._touch(found(self._catalogue.get(ArchiveRecord, directory), "archive directory").space, directory)

    def _require_directory(self, directory: int) -> ArchiveDirectory:
        return found(self.archive_directory_by_id(directory), "archive directory")

    def _directory_shelf(self, directory: int) -> Shelf:
        record = self._catalogue.get(ArchiveRecord, directory)
        return Shelf() if record is None else self._shelf(record.space, directory)

    def _is_there(self, record: ArchiveRecord | ArchiveDirectory) -> bool:
        above = None if record.parent is None else self._catalogue.get(ArchiveRecord, record.parent)
        return self.space(record.space) is not None and (record.parent is None or above is not None)

    def _archive_path(self, directory: ArchiveRecord | ArchiveDirectory) -> str:
        return f"{self._shelf_path(directory.space, directory.parent)}/{directory.name}"

    def _shelf_path(self, space: str, directory: int | None) -> str:
        if directory is None:
            return f"{self._path(space)}/{ARCHIVE}"
        return self._shelf_path_of(directory)

    def _shelf_path_of(self, directory: int) -> str:
        return self._archive_path(found(self._catalogue.get(ArchiveRecord, directory), "archive directory"))

    def _touch(self, space: str, directory: int | None) -> None:
        """A directory of the archive has changed."""
        if directory is None:
            return
        row = self._require_directory(directory)
        mtime = later(row.mtime, self._shared.clock.tick())
        stamp(self._archive_path(row), mtime)
        self._shelf(space, row.parent).directories.put(msgspec.structs.replace(row, mtime=mtime))

    def _shelf(self, space: str, directory: int | None) -> Shelf:
        """What an archive directory holds, found now if nobody asked before."""
        shelf = self._shelves.get((space, directory))
        if shelf is None:
            path = self._shelf_path(space, directory)
            with reported():
                shelf = self._shelves[space, directory] = self._look(space, directory, path)
        return shelf

    def _look(self, space: str, directory: int | None, path: str) -> Shelf:
        """What is below the archive's ``path``; catalogued sessions and directories that are gone are dropped."""
        remove_leftovers(path)
        known = {
            each.name: each
            for each in self._catalogue.all(ArchiveRecord)
            if (each.space, each.parent) == (space, directory)
        }
        sessions = self._archived.pop(directory, {}) if directory is not None else {}
        above = None if directory is None else self._catalogue.get(ArchiveRecord, directory)
        shelf = Shelf()
        for name in filter(is_component, directories(path)):
            if above and is_session_name(name) and (name in sessions or holds_log(f"{path}/{name}")):
                shelf.sessions[name] = sessions.pop(name, 0) or self._found_archived(above, f"{path}/{name}", name)
            else:
                shelf.directories.put(self._found_directory(space, directory, f"{path}/{name}", known.pop(name, None)))
        self._drop_sessions([id for id in sessions.values() if not self._is_live(id)])
        self._catalogue.drop(*(record.id for record in known.values()))
        return shelf

    def _is_live(self, session: int) -> bool:
        """Whether a session that is not in the archive is still where it was (we died before it was moved)."""
        record = self._catalogue.get(SessionRecord, session)
        if record is None or record.owner is None or self._catalogue.get(OwnerRecord, record.owner) is None:
            return False
        return session in self._held(record.owner).names.values()

    def _found_directory(
        self, space: str, parent: int | None, path: str, record: ArchiveRecord | None
    ) -> ArchiveDirectory:
        if record is None:
            uid = os.lstat(path).st_uid
            record = ArchiveRecord(self._catalogue.next_id(), space, parent, os.path.basename(path), uid)
            self._catalogue.put(record)
        return _archive_row(record, path)


def _archive_row(record: ArchiveRecord, path: str) -> ArchiveDirectory:
    mtime = max(1, os.lstat(path).st_mtime_ns)
    return ArchiveDirectory(record.id, record.space, record.parent, record.name, record.uid, mtime)
