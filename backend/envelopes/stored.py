"""The stored sessions of one workspace as files that nobody looks into: which there are, and removing them (spec 5).

Creates nothing but locks. A store belongs to one thread, descriptors are held until ``close``.
"""

from __future__ import annotations

from backend.envelopes import directories, places
from backend.envelopes.closing import Closer
from backend.envelopes.directories import Directory, MovingLock, checked_id
from backend.envelopes.errors import EnvelopeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from typing import Self


class StoredSessions:
    """The directories of a workspace's sessions: its scope, and a legacy one that is provably its own."""

    def __init__(self, workspace: str, persist_dir: str) -> None:
        self.places = places.places_of(workspace, persist_dir)
        self.workspace = self.places.workspace
        self._scope = directories.opened(self.places.scope, "scoped")
        self._legacy = self._open_legacy()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets its directories go."""
        for directory in (self._scope, self._legacy):
            if directory is not None:
                directory.close()
        self._scope = self._legacy = None

    def ids(self) -> list[str]:
        """Every stored id, in order."""
        directory = self._directory()
        found: dict[str, None] = {}  # in the order of the listing, which is sorted in half the time of a set's
        for listed in (directory, self._legacy):
            if listed is not None:
                found |= dict.fromkeys(listed.ids())
        return sorted(found)

    def clear(self, id: str, protected: Container[str]) -> None:
        """Removes a session: its legacy copy first, so that it is never seen again by accident."""
        (error,) = self.clear_each([id], protected)
        if error is not None:
            raise error

    def clear_each(self, ids: Iterable[str], protected: Container[str]) -> list[EnvelopeError | None]:
        """As ``clear`` for many, one after another; why each was not removed."""
        directory = self._directory()
        outcomes: list[EnvelopeError | None] = []
        with Closer() as closer, MovingLock() as lock:
            for id in ids:
                try:
                    self._clear(id, protected, directory, lock, closer)
                except EnvelopeError as error:
                    outcomes.append(error)
                else:
                    outcomes.append(None)
        return outcomes

    def _clear(
        self, id: str, protected: Container[str], directory: Directory | None, lock: MovingLock, closer: Closer
    ) -> None:
        if checked_id(id) in protected:
            raise EnvelopeError("active_session", id=id)
        file = directory.open(id) if directory else None
        if directory is None or file is None:
            if not exists(self._legacy, id):
                raise EnvelopeError("not_found", id=id)
            self._remove_legacy(id)
            return
        try:
            lock.take(directory, id)
            self._remove_legacy(id)
            directory.remove(id)
        finally:
            closer.close(file.descriptor)

    def _open_legacy(self) -> Directory | None:
        path = self.places.legacy
        try:
            return directories.opened(path, "legacy") if path is not None else None
        except EnvelopeError:
            return None  # swapped since it was found: nobody's

    def _directory(self) -> Directory | None:
        """The scope directory as it is now, None while there is none."""
        if self._scope is not None and self._scope.is_removed:
            self._scope.close()
            self._scope = None
        if self._scope is None:
            self._scope = directories.opened(self.places.scope, "scoped")
        return self._scope

    def _remove_legacy(self, id: str) -> None:
        """Removes the legacy copy under its own lock."""
        file = self._legacy.open(id) if self._legacy else None
        if file is not None:
            with file:
                file.lock("lock legacy session")
                self._remove_legacy_file(id)

    def _remove_legacy_file(self, id: str) -> None:
        if self._legacy is not None and exists(self._legacy, id):
            self._legacy.remove(id)


def exists(directory: Directory | None, id: str) -> bool:
    """Whether a session's file is there; ``corrupt`` for whatever else has its name."""
    file = directory.open(id) if directory else None
    if file is None:
        return False
    with file:
        return True
