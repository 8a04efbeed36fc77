"""The store contracts: the log (``SessionStore``, spec 2.9) and what files need beside it (``FileStore``).

Every store (sqlite, memory, jsonl) implements both on one object; one contract suite runs over all.
No store knows FUSE, users' rights, or sockets: callers have checked who may do what.

Threads: a store is used by one thread at a time, the one that opened it or was handed it. ``FileStore`` is
synchronous and never waits for the disk (commits go to the page cache); only ``sync`` and ``maintain`` may wait,
and they alone may be called from other threads, at the same time as anything else.

A mutating call changes the log and everything derived from it in one transaction, or raises a ``CtxError``
and has changed nothing. A full disk is ``StoreFull``, a failing one ``StoreFailed``.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from backend.entries import Entry, NewEntry, SessionHead, SessionHeader
from backend.errors import CtxError
from backend.rows import (
    NO_SOURCE,
    Append,
    Appended,
    ArchiveDirectory,
    IndexKind,
    Mapping,
    Owner,
    OwnerKind,
    Removed,
    Row,
    RunLine,
    Session,
    Snapshot,
    Source,
    Space,
    Stream,
)


class SessionStore(Protocol):
    """The log contract of spec 2.9. ``list``: by createdAt descending, then sessionId; ``limit`` 0 is none."""

    async def head(self, session_id: str) -> SessionHead | None: ...
    async def read(self, session_id: str, start: int = 0) -> Sequence[Entry]: ...
    async def put(self, session_id: str, expected_n: int, entries: Sequence[NewEntry]) -> None: ...
    async def create(self, header: SessionHeader, entries: Sequence[NewEntry] = ()) -> None: ...
    async def list(self, *, parent: str | None = None, limit: int | None = None) -> Sequence[SessionHeader]: ...
    async def delete(self, session_id: str) -> bool: ...


class SpaceStore(Protocol):
    """Homes, shared places, and the agents and models in them."""

    def space(self, name: str) -> Space | None: ...
    def spaces(self, prefix: Literal["home/", "shared/"]) -> Sequence[Space]: ...
    def add_space(self, name: str, uid: int, gid: int, mode: int) -> Space: ...
    def change_space(self, name: str, uid: int, gid: int, mode: int) -> Space: ...
    def remove_space(self, name: str) -> None:
        """``NotEmpty`` while it holds an owner, a session or an archive directory."""
        ...

    def owner(self, space: str, kind: OwnerKind, name: str) -> Owner | None: ...
    def owner_by_id(self, owner: int) -> Owner | None: ...
    def owners(self, space: str, kind: OwnerKind) -> Sequence[Owner]: ...
    def add_owner(self, space: str, kind: OwnerKind, name: str, uid: int, gid: int) -> Owner: ...
    def remove_owner(self, owner: int) -> None:
        """``NotEmpty`` while it holds a session."""
        ...


class SessionFiles(Protocol):
    """Sessions as directories of files."""

    def session(self, owner: int, name: str) -> Session | None:
        """The live session of that name."""
        ...

    def session_by_id(self, session: int) -> Session | None: ...
    def sessions(self, owner: int, after: int = 0, limit: int = 1000) -> Sequence[Session]:
        """Live sessions with an id above ``after``, by id; costs what it returns."""
        ...

    def listing(self, owner: int, after: int = 0, limit: int = 1000) -> Sequence[tuple[int, str, int, int]]:
        """``(id, name, uid, updated_at)`` of what ``sessions`` returns: all that a long directory needs of each."""
        ...

    def create_session(
        self, owner: int, name: str, uid: int, session_id: str | None = None, source: Source = NO_SOURCE
    ) -> Session:
        """An empty live session (``SessionAlreadyExistsError``); the owner's first becomes its current one.

        It has no entry; list changes, mtimes of the new files are its creation time.
        """
        ...

    def branch_session(self, session: int, at: int, name: str, session_id: str | None = None) -> Session:
        """A child of the same owner that holds the first ``at`` entries by reference (spec 2.8)."""
        ...

    def delete_session(self, session: int) -> Removed:
        """Irreversible; children stay whole."""
        ...

    def context_directory(self, session: int) -> str | None:
        """Where the files of the runtime in ``context/`` lie, below the directory of ordinary files (spec 1.7).

        None where the store has no directory for a session: they are then the caller's to keep, and to remove.
        """
        ...

    def read_stream(self, session: int, stream: Stream, offset: int, size: int) -> bytes:
        """Bytes of a log file; short only at its end. Costs what it returns."""
        ...

    def latest(self, session: int) -> bytes:
        """The content of latest.md (spec 1.3), computed from the entry it comes from."""
        ...

    def rows(self, session: int, start: int = 0, limit: int = 1000) -> Sequence[Row]:
        """Entries in log order, as stored."""
        ...

    def append(self, batch: Sequence[Append]) -> Sequence[Appended | CtxError]:
        """Group commit: one transaction for all of ``batch``; a refused append leaves the others alone.

        A result per append, in order: what changed, or why it was refused. The same session may come twice.
        """
        ...

    def index_runs(self, session: int) -> bool:
        """Looks at some entries more of a log whose index is not kept on disk; whether there are others to look at.

        ``starts`` and ``run_lines`` look at all that are left, which may take long.
        """
        ...

    def starts(self, session: int, client: str) -> Sequence[RunLine]:
        """The starts with that client id, in log order, at most two; found by an index, not by reading the log."""
        ...

    def run_lines(self, session: int, run: str) -> Sequence[RunLine]:
        """What the log says of a run, in log order, at most ``MAX_RUN_LINES``; found by an index."""
        ...

    def live_runs(self) -> Sequence[tuple[int, str]]:
        """``(session, run)`` of what an append began and no done has ended: after a crash, those that died with it."""
        ...

    def forget_run(self, session: int) -> None:
        """The session has no live run, whatever was recorded; its log stays as it is."""
        ...

    def sync(self) -> None:
        """Returns when everything committed before the call is on disk (survives power loss)."""
        ...

    def snapshot(self, session: int, name: str) -> Snapshot | None: ...
    def read_snapshot(self, session: int, name: str) -> bytes: ...
    def write_snapshot(self, session: int, name: str, content: bytes) -> Snapshot: ...
    def remove_snapshot(self, session: int, name: str) -> None: ...


class IndexFiles(Protocol):
    """The files of ``index/``."""

    def list_content(self, owner: int) -> bytes:
        """index/list: live session names, the highest ``seq`` first, one a line."""
        ...

    def set_current(self, owner: int, name: str) -> Owner:
        """``Missing`` where there is no such live session."""
        ...

    def mapping(self, owner: int, kind: IndexKind, key: str) -> Mapping | None: ...
    def mapping_by_id(self, mapping: int) -> Mapping | None: ...
    def mappings(self, owner: int, kind: IndexKind, after: int = 0, limit: int = 1000) -> Sequence[Mapping]: ...
    def set_mapping(self, owner: int, kind: IndexKind, key: str, session: str) -> Mapping: ...
    def set_mappings(self, owner: int, kind: IndexKind, sessions: dict[str, str]) -> None:
        """``set_mapping`` for the session of each key, none of them where one is ``Missing``."""
        ...

    def remove_mapping(self, mapping: int) -> None: ...


class ArchiveFiles(Protocol):
    """``archived_sessions/`` of a space."""

    def archive_directory(self, space: str, parent: int | None, name: str) -> ArchiveDirectory | None: ...
    def archive_directory_by_id(self, directory: int) -> ArchiveDirectory | None: ...
    def archive_directories(self, space: str, parent: int | None) -> Sequence[ArchiveDirectory]: ...
    def add_archive_directory(self, space: str, parent: int | None, name: str, uid: int) -> ArchiveDirectory: ...
    def remove_archive_directory(self, directory: int) -> None: ...
    def archive_session(self, session: int, directory: int) -> Removed:
        """Moves a live session (``Exists`` where the name is taken; ``Busy`` if its state is active, or it is
        ``default`` or its owner's current one) and takes its references out of the index (spec 4.4)."""
        ...

    def archived_session(self, directory: int, name: str) -> Session | None: ...
    def archived_sessions(self, directory: int, after: int = 0, limit: int = 1000) -> Sequence[Session]: ...


class DefinitionFiles(Protocol):
    """``agent/<agent>.d/`` and ``model/<provider>/<model>.d/``: admin's values, as bytes (spec 1.2)."""

    def definitions(self, kind: OwnerKind) -> Sequence[tuple[int, str, int]]:
        """``(id, name, mtime ns)`` of every defined agent or model."""
        ...

    def add_definition(self, kind: OwnerKind, name: str) -> int: ...
    def remove_definition(self, definition: int) -> None: ...
    def definition_value(self, definition: int, file: str) -> tuple[bytes, int] | None:
        """Content and mtime, None where it was never written."""
        ...

    def set_definition_value(self, definition: int, file: str, content: bytes) -> int:
        """Returns the new mtime."""
        ...


class StoreStatus(msgspec.Struct, frozen=True):
    """Figures for ``status``: sessions (live), homes, bytes on disk, and the last failure of the disk if any."""

    format: str
    sessions: int
    spaces: int
    bytes: int
    failure: str | None


class FileStore(SpaceStore, SessionFiles, IndexFiles, ArchiveFiles, DefinitionFiles, Protocol):
    """All that the mount needs of a store."""

    def status(self) -> StoreStatus: ...
    def maintain(self) -> None:
        """Does what can wait, if there is any: called about every second, beside everything else (see Threads)."""
        ...

    def close(self) -> None:
        """Syncs, then lets go of the disk."""
        ...


class Store(SessionStore, FileStore, Protocol):
    """What every constructor returns: ``SqliteStore.open(path)``, ``MemoryStore()``, ``JsonlStore.open(dir)``."""

    @property
    def ephemeral(self) -> bool:
        """Whether sessions are gone with the process (spec 2.9, ``release_if_ephemeral``)."""
        ...

    def find(self, session_id: str) -> Session | None:
        """The session of that id, wherever it is: live, archived, without a place."""
        ...

    async def branch(self, header: SessionHeader) -> None:
        """Creates a session that holds the first ``header.at`` entries of ``header.parent`` by reference (spec 2.8).

        ``SessionNotFoundError``, ``SessionAlreadyExistsError``; ``SessionError`` for ``at`` beyond its end.
        It has no place.
        """
        ...


class DiskStore(Store, Protocol):
    """A store in a directory, which can be copied while it is open."""

    def copy(self, target: Path, in_turn: Callable[[Callable[[], None]], None], proceed: Callable[[int], None]) -> None:
        """Copies all of it into the empty directory ``target``, from a thread of the caller's, while others write.

        Everything that was committed before the call is in the copy, nothing by half; ordinary directories are copied
        as they are found. ``in_turn`` runs something on the store's thread. ``proceed`` is told of bytes, on any
        thread; what it raises ends the copy. The copy is not synced. ``StoreFull``, ``StoreFailed``, ``OSError``.
        """
        ...

    def integrity(self) -> Sequence[str]:
        """What is wrong with the store's own files, in words; reads all of them. For the store's thread."""
        ...

    def drift(self) -> Sequence[str]:
        """What does not hold that the store's own format promises, in words. For the store's thread."""
        ...

    def repair(self) -> None:
        """Makes what is derived anew where it is wrong; the log is never touched. For the store's thread."""
        ...
