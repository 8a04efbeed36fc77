"""The stored sessions of one workspace as files that nobody looks into: which there are, and removing them (spec 5).

Creates nothing but locks. A store belongs to one thread, descriptors are held until ``close``; ``clear_each`` alone
lends its directories to threads of its own, which open, lock and remove files relative to them.
"""

from __future__ import annotations

from backend.envelopes import directories, places
from backend.envelopes.directories import Directory, checked_id
from backend.envelopes.errors import EnvelopeError
from backend.envelopes.together import together

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from typing import Self

_AT_ONCE = 4  # removals: most of the time of each is spent waiting for the file system


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
        self._clear(id, protected, self._directory())

    def clear_each(self, ids: Sequence[str], protected: Container[str]) -> list[EnvelopeError | None]:
        """Removes sessions, several at a time; what was wrong with each, in order.

        An id that comes again is asked for again when all others are done.
        """
        directory = self._directory()

        def cleared(id: str) -> EnvelopeError | None:
            try:
                self._clear(id, protected, directory)
            except EnvelopeError as error:
                return error
            return None

        different = list(dict.fromkeys(ids))
        found = dict(zip(different, together(cleared, different, _AT_ONCE), strict=True))
        return [found.pop(id) if id in found else cleared(id) for id in ids]

    def _clear(self, id: str, protected: Container[str], directory: Directory | None) -> None:
        if checked_id(id) in protected:
            raise EnvelopeError("active_session", id=id)
        scoped = exists(directory, id)
        if not scoped and not exists(self._legacy, id):
            raise EnvelopeError("not_found", id=id)
        if directory is None or not scoped:
            self._remove_legacy(id)
            return
        with directory.locked(id):
            self._remove_legacy(id)
            directory.remove(id)
            directory.remove_lock(id)

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
