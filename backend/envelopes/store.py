"""Reading and writing the sessions of one workspace: scoped ones, and the legacy ones that are its own (spec 5).

Reading creates nothing; ``persist`` makes the scope directory, migrates legacy files and sweeps what crashed writers
left. Optimistic generations decide between writers, locks only keep a write whole.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress

from backend.envelopes import directories, places, sessions
from backend.envelopes.directories import Directory, SessionFile, checked_id
from backend.envelopes.errors import EnvelopeError
from backend.envelopes.sessions import Session
from backend.envelopes.stored import StoredSessions, exists
from backend.envelopes.strict import MAX_U64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Listed = tuple[int, str, str]
    """A session file found by listing: minus its mtime in ms, its id, its scope; so they sort newest first."""

MAX_PAGE = 100

_VERSION = "v1"


class SessionStore(StoredSessions):
    """Sessions of a workspace on disk; every method raises ``EnvelopeError`` and nothing else."""

    _swept = False

    def page(self, limit: int, cursor: str | None = None) -> tuple[list[dict[str, Any]], str | None]:
        """A page of summaries, newest first, and the cursor of the next one; 1 to 100 a page."""
        after = None if cursor is None else _parsed(cursor)
        directory = self._directory()
        found = [(-modified, id, "") for modified, id in directory.times()] if directory else []
        if self._legacy is not None:
            scoped = {id for _, id, _ in found}
            found += [(-modified, id, "") for modified, id in self._legacy.times() if id not in scoped]
        return _page(found, limit, after, self._listed)

    def page_of_all(self, limit: int, cursor: str | None = None) -> tuple[list[dict[str, Any]], str | None]:
        """As ``page`` for every workspace of the root, but for legacy sessions."""
        after = None if cursor is None else _parsed(cursor)
        found: list[Listed] = []
        for name in filter(places.is_scope, directories.subdirectories(self.places.root)):
            with suppress(EnvelopeError), self._other(name) as directory:
                found += [(-modified, id, name) for modified, id in directory.times()]
        return _page(found, limit, after, self._listed_elsewhere)

    def inspect(self, id: str) -> dict[str, Any]:
        """A session's summary, whatever its health."""
        file, legacy = self._opened(checked_id(id))
        with file:
            if file.is_too_large:
                return self._failed(file, EnvelopeError("corrupt", id=id, detail=directories.TOO_LARGE))
            if legacy:
                return self._decoded_legacy(file).summary()
            return self._summary(file)

    def load(self, id: str) -> Session:
        """A session that can be resumed; ``corrupt``, ``incompatible_version``, ``scope_mismatch``, ``not_found``."""
        file, legacy = self._opened(checked_id(id))
        with file:
            return self._decoded_legacy(file) if legacy else self._decoded(file)

    def new(self, model: str, messages: list[dict[str, Any]], id: str | None = None) -> Session:
        """A session that is nowhere yet: generation 0."""
        import uuid

        now = _now_ms()
        made = checked_id(str(uuid.uuid4()) if id is None else id)
        try:
            count, prompt = sessions.judged(messages)
        except ValueError as error:
            raise EnvelopeError("corrupt", id=made, detail=str(error)) from None
        return Session(
            session_id=made,
            workspace_scope=self.workspace,
            created_at_ms=now,
            updated_at_ms=now,
            model=model,
            generation=0,
            messages=messages,
            message_count=count,
            first_prompt=prompt,
        )

    def persist(self, session: Session) -> Session:
        """Writes a session if its generation is the stored one, else ``conflict``; the session as it is then.

        A legacy copy goes once the new file is on disk; if it cannot, that is an ``io`` error, and the next persist
        tries again.
        """
        id = checked_id(session.session_id)
        if session.workspace_scope != self.workspace:
            parts = {"actual": session.workspace_scope, "expected": self.workspace}
            raise EnvelopeError("scope_mismatch", id=id, **parts)
        directory = self._writable()
        with directory.locked(id), self._locked_legacy(id, directory):
            return self._written(session, directory)

    def _written(self, session: Session, directory: Directory) -> Session:
        id = session.session_id
        stored = directory.open(id)
        if stored is not None:
            with stored:
                current = self._decoded(stored)
            if session.compaction_revision < current.compaction_revision:
                raise EnvelopeError("conflict", id=id)
        if (current.generation if stored else 0) != session.generation:
            raise EnvelopeError("conflict", id=id)
        if session.generation >= MAX_U64:
            raise EnvelopeError("corrupt", id=id, detail="session generation is exhausted")
        if stored is not None:
            self._remove_legacy_file(id)
        written = session.changed(generation=session.generation + 1, updated_at_ms=_now_ms())
        raw = sessions.encoded(written)
        if len(raw) > directories.MAX_SESSION_FILE:
            limit = directories.MAX_SESSION_FILE
            raise EnvelopeError("corrupt", id=id, detail=f"serialized session exceeds the {limit} byte safety limit")
        directory.replace(id, raw)
        self._remove_legacy_file(id)
        return written

    def _writable(self) -> Directory:
        directory = self._directory()
        if directory is None:
            directory = self._scope = directories.made(self.places.scope, "scoped")
        directory.make_private()
        if not self._swept:
            directory.sweep()
            self._swept = True
        return directory

    @contextmanager
    def _other(self, scope: str) -> Iterator[Directory]:
        """Another workspace's directory, only while it is looked at: there may be more of them than descriptors."""
        directory = directories.opened(f"{self.places.root.rstrip('/')}/{scope}", "scoped")
        if directory is None:
            raise EnvelopeError("not_found", id=scope)
        with directory:
            yield directory

    def _opened(self, id: str) -> tuple[SessionFile, bool]:
        """A session's file, and whether it is a legacy one."""
        directory = self._directory()
        file = directory.open(id) if directory else None
        if file is not None:
            return file, False
        file = self._legacy.open(id) if self._legacy else None
        if file is None:
            raise EnvelopeError("not_found", id=id)
        return file, True

    def _listed(self, entry: Listed) -> dict[str, Any] | None:
        """The summary of an entry of a page; None if it went meanwhile or cannot be read."""
        age, id, _ = entry
        try:
            file, legacy = self._opened(id)
            with file:
                return self._decoded_legacy(file).summary() if legacy else self._summary(file)
        except EnvelopeError as error:
            if error.code in ("not_found", "io"):
                return None
            return sessions.failed_summary(id, error, self.workspace, -age)

    def _listed_elsewhere(self, entry: Listed) -> dict[str, Any] | None:
        age, id, scope = entry
        try:
            with self._other(scope) as directory:
                file = directory.open(id)
                if file is None:
                    return None
                with file:
                    return self._summary(file) if scope == self._own else self._foreign(file)
        except EnvelopeError as error:
            if error.code != "corrupt":
                return None
            return sessions.failed_summary(id, error, self.workspace, -age)

    @property
    def _own(self) -> str:
        return self.places.scope.rpartition("/")[2]

    def _foreign(self, file: SessionFile) -> dict[str, Any]:
        """A session in another workspace's directory: not this one's even where it does not say whose it is."""
        summary = self._summary(file)
        if summary["health"] != "ready":
            return summary
        parts = {"actual": self.workspace, "expected": self.workspace}
        return self._failed(file, EnvelopeError("scope_mismatch", id=file.id, **parts))

    def _summary(self, file: SessionFile) -> dict[str, Any]:
        try:
            return self._decoded(file).summary()
        except EnvelopeError as error:
            if error.code == "io":
                raise
            return self._failed(file, error)

    def _failed(self, file: SessionFile, error: EnvelopeError) -> dict[str, Any]:
        return sessions.failed_summary(file.id, error, self.workspace, file.modified_ms)

    def _decoded(self, file: SessionFile) -> Session:
        return sessions.decoded(file.id, file.read(), self.workspace, file.modified_ms)

    def _decoded_legacy(self, file: SessionFile) -> Session:
        return sessions.decoded_legacy(file.id, file.read(), self.workspace, file.modified_ms)

    @contextmanager
    def _locked_legacy(self, id: str, directory: Directory) -> Iterator[None]:
        """Holds the legacy copy's lock; one that would be migrated must be a session."""
        file = self._legacy.open(id) if self._legacy else None
        if file is None:
            yield
            return
        with file:
            file.lock("lock legacy session")
            if not exists(directory, id):
                self._decoded_legacy(file)
            yield


def _page(
    found: list[Listed],
    limit: int,
    after: Listed | None,
    summary: Callable[[Listed], dict[str, Any] | None],
) -> tuple[list[dict[str, Any]], str | None]:
    """Reads entries until the page is full or none are left; the cursor is the last one that was looked at."""
    waiting = sorted(entry for entry in found if after is None or entry[:2] > after[:2])
    wanted = min(max(limit, 1), MAX_PAGE)
    page: list[dict[str, Any]] = []
    for number, entry in enumerate(waiting, 1):
        shown = summary(entry)
        if shown is not None:
            page.append(shown)
        if len(page) == wanted:
            left = number < len(waiting)
            return page, f"{_VERSION}:{-entry[0]:016x}:{entry[1]}" if left else None
    return page, None


def _parsed(cursor: str) -> Listed:
    version, _, rest = cursor.partition(":")
    time_text, _, id = rest.partition(":")
    digits = time_text.removeprefix("+")
    known = version == _VERSION and digits and places.HEX_DIGITS.issuperset(digits)
    with suppress(EnvelopeError):
        if known and int(digits, 16) <= MAX_U64:
            return -int(digits, 16), checked_id(id), ""
    raise EnvelopeError("invalid_cursor", value=cursor)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
