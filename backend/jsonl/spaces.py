"""Homes, shared places, and the agents and models in them: ``SpaceStore`` over directories (spec 1.2, 1.8).

A space is there while its directory is; an agent or model while it has a ``session/``.
"""

import os
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from typing import Literal

from backend.errors import Exists, InvalidValue, NotEmpty
from backend.facts import later
from backend.jsonl.catalogue import Catalogue, MappingRecord, OwnerRecord, SessionRecord, SpaceRecord
from backend.jsonl.disk import directories, make_directories, names, reported
from backend.jsonl.log import Workshop
from backend.jsonl.paths import (
    ARCHIVE,
    holds_anything,
    is_space,
    owner_names,
    owner_path,
)
from backend.log_contract import found
from backend.rows import OwnerKind, Space

_PREFIXES = ("home", "shared")
_OWNER_KINDS: tuple[OwnerKind, OwnerKind] = ("agent", "model")


class Spaces:
    """The spaces and the records of owners, and what all parts of the store share."""

    def __init__(self, directory: str, catalogue: Catalogue, shared: Workshop) -> None:
        self._directory = directory
        self._catalogue = catalogue
        self._shared = shared
        self._spaces: dict[str, Space] = {}
        self._owner_ids: dict[tuple[str, OwnerKind, str], int] = {}
        self._discover_spaces()
        for space in self._spaces:
            self._discover_owners(space)
        self._forget_owners()

    def space(self, name: str) -> Space | None:
        return self._spaces.get(name)

    def spaces(self, prefix: Literal["home/", "shared/"]) -> Sequence[Space]:
        return [space for name, space in self._spaces.items() if name.startswith(prefix)]

    def add_space(self, name: str, uid: int, gid: int, mode: int) -> Space:
        if name in self._spaces:
            raise Exists(f"{name} exists")
        if not is_space(name):
            raise InvalidValue(f"{name!r} is no home and no shared place")
        path = self._path(name)
        with reported():
            make_directories(path)
            _give(path, uid, gid)
            self._synced(path)
            record = SpaceRecord(self._catalogue.next_id(), name, uid, gid, mode, self._shared.clock.tick())
            self._catalogue.put(record)
            return self._take_space(record)

    def change_space(self, name: str, uid: int, gid: int, mode: int) -> Space:
        space = found(self.space(name), "space")
        path, mtime = self._path(name), later(space.mtime, self._shared.clock.tick())
        with reported():
            _give(path, uid, gid)
            self._catalogue.put(SpaceRecord(space.id, name, uid, gid, mode, mtime))
        self._spaces[name] = Space(space.id, name, uid, gid, mode, mtime)
        return self._spaces[name]

    def remove_space(self, name: str) -> None:
        space, path = found(self.space(name), "space"), self._path(name)
        if any(place == name for place, _, _ in self._owner_ids) or names(f"{path}/{ARCHIVE}"):
            raise NotEmpty(f"{name} holds an agent, a model or archived sessions")
        with reported():
            for inner in ("agent", "model", ARCHIVE, "."):
                # What is left is the user's: the directory stays, but is no space any more.
                with suppress(OSError):
                    os.rmdir(os.path.normpath(f"{path}/{inner}"))
            self._catalogue.drop(space.id)
        del self._spaces[name]

    def _path(self, space: str) -> str:
        return f"{self._directory}/{space}"

    def _owner_path(self, owner: OwnerRecord) -> str:
        return f"{self._path(owner.space)}/{owner_path(owner.kind, owner.name)}"

    def _synced(self, path: str) -> None:
        """Adds a new directory, and those above it, to what the next sync waits for."""
        while path != self._directory:
            self._shared.durability.add((path,))
            path = os.path.dirname(path)
        self._shared.durability.add((path,))

    def _take_space(self, record: SpaceRecord) -> Space:
        mtime = record.mtime or os.lstat(self._path(record.name)).st_mtime_ns
        space = Space(record.id, record.name, record.uid, record.gid, record.mode, max(1, mtime))
        self._spaces[record.name] = space
        return space

    def _discover_spaces(self) -> None:
        known = {record.name: record for record in self._catalogue.all(SpaceRecord)}
        there = [name for prefix in _PREFIXES for name in self._space_names(prefix)]
        for record in known.values():
            if record.name in there:
                self._take_space(record)
            else:
                self._catalogue.drop(record.id)
        for name in there:
            if name not in known and holds_anything(self._path(name)):
                record = _space_record(self._catalogue.next_id(), name, os.lstat(self._path(name)))
                self._catalogue.put(record)
                self._take_space(record)

    def _space_names(self, prefix: str) -> Iterator[str]:
        return (name for each in directories(self._path(prefix)) if is_space(name := f"{prefix}/{each}"))

    def _discover_owners(self, space: str) -> None:
        row = self._spaces[space]
        known = {(owner.kind, owner.name): owner for owner in self._catalogue.all(OwnerRecord) if owner.space == space}
        for kind in _OWNER_KINDS:
            for name in owner_names(self._path(space), kind):
                record = known.get((kind, name))
                if record is None:
                    record = OwnerRecord(self._catalogue.next_id(), space, kind, name, row.uid, row.gid)
                    self._catalogue.put(record)
                self._owner_ids[space, kind, name] = record.id

    def _forget_owners(self) -> None:
        there = set(self._owner_ids.values())
        gone = {owner.id for owner in self._catalogue.all(OwnerRecord) if owner.id not in there}
        if gone:
            self._catalogue.drop(*gone, *self._belongings(gone))

    def _belongings(self, owners: Container[int]) -> list[int]:
        """The ids of what goes with an owner: its mappings, and sessions that were not archived."""
        mappings = (each for each in self._catalogue.all(MappingRecord) if each.owner in owners)
        sessions = (
            each for each in self._catalogue.all(SessionRecord) if each.archive is None and each.owner in owners
        )
        return [each.id for each in (*mappings, *sessions)]


def _give(path: str, uid: int, gid: int) -> None:
    """The directory of a space belongs to whom the space belongs to, where we may say so (see ``disk.own``)."""
    if os.geteuid() == 0:
        with suppress(OSError):
            os.chown(path, uid, gid)


def _space_record(id: int, name: str, stat: os.stat_result) -> SpaceRecord:
    prefix, _, rest = name.partition("/")
    if prefix == "home":
        return SpaceRecord(id, name, int(rest), stat.st_gid, 0o700)
    return SpaceRecord(id, name, stat.st_uid, stat.st_gid, stat.st_mode & 0o7777)
