"""Homes, shared places, owners and index mappings of the memory store (``SpaceStore``, ``IndexFiles``)."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Literal

import msgspec

from backend.errors import Exists, Missing, NotEmpty
from backend.facts import later
from backend.log_contract import found
from backend.memory.parts import OwnerIndex, Rows
from backend.rows import ArchiveDirectory, IndexKind, Mapping, Owner, OwnerKind, Space


class Spaces:
    """Homes, shared places, owners; the base that holds the ids and the clock."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._next_id = count(1).__next__
        self._next_seq = count(1).__next__
        self._spaces: dict[str, Space] = {}
        self._owners: dict[int, Owner] = {}
        self._owner_ids: dict[tuple[str, OwnerKind, str], int] = {}
        self._index: dict[int, OwnerIndex] = {}
        self._directories: dict[int, ArchiveDirectory] = {}

    def space(self, name: str) -> Space | None:
        return self._spaces.get(name)

    def spaces(self, prefix: Literal["home/", "shared/"]) -> Sequence[Space]:
        return [space for name, space in self._spaces.items() if name.startswith(prefix)]

    def add_space(self, name: str, uid: int, gid: int, mode: int) -> Space:
        if name in self._spaces:
            raise Exists(f"{name} exists")
        self._spaces[name] = Space(self._next_id(), name, uid, gid, mode, self._clock())
        return self._spaces[name]

    def change_space(self, name: str, uid: int, gid: int, mode: int) -> Space:
        space = found(self.space(name), "space")
        mtime = later(space.mtime, self._clock())
        self._spaces[name] = msgspec.structs.replace(space, uid=uid, gid=gid, mode=mode, mtime=mtime)
        return self._spaces[name]

    def remove_space(self, name: str) -> None:
        found(self.space(name), "space")
        holders = (*(row.space for row in self._owners.values()), *(row.space for row in self._directories.values()))
        if name in holders:
            raise NotEmpty(f"{name} holds an agent, a model or archived sessions")
        del self._spaces[name]

    def owner(self, space: str, kind: OwnerKind, name: str) -> Owner | None:
        id = self._owner_ids.get((space, kind, name))
        return None if id is None else self._owners[id]

    def owner_by_id(self, owner: int) -> Owner | None:
        return self._owners.get(owner)

    def owners(self, space: str, kind: OwnerKind) -> Sequence[Owner]:
        return [owner for owner in self._owners.values() if (owner.space, owner.kind) == (space, kind)]

    def add_owner(self, space: str, kind: OwnerKind, name: str, uid: int, gid: int) -> Owner:
        found(self.space(space), "space")
        if self.owner(space, kind, name) is not None:
            raise Exists(f"{kind} {name} exists")
        id, now = self._next_id(), self._clock()
        self._owners[id] = Owner(id, space, kind, name, uid, gid, now, None, now, 0, now)
        self._owner_ids[space, kind, name] = id
        self._index[id] = OwnerIndex()
        return self._owners[id]

    def remove_owner(self, owner: int) -> None:
        row = self._require_owner(owner)
        if len(self._index[owner].rows):
            raise NotEmpty(f"{row.kind} {row.name} has sessions")
        del self._owners[owner], self._owner_ids[row.space, row.kind, row.name], self._index[owner]

    def set_current(self, owner: int, name: str) -> Owner:
        row = self._require_owner(owner)
        if name not in self._index[owner].names:
            raise Missing("no such session")
        return row if row.current == name else self._set_current(row, name)

    def list_content(self, owner: int) -> bytes:
        self._require_owner(owner)
        return b"".join(session.name.encode() + b"\n" for session in self._index[owner].by_update() if session)

    def _set_current(self, owner: Owner, name: str | None) -> Owner:
        mtime = later(owner.current_mtime, self._clock())
        return self._change_owner(msgspec.structs.replace(owner, current=name, current_mtime=mtime))

    def _change_owner(self, owner: Owner) -> Owner:
        self._owners[owner.id] = owner
        return owner

    def _require_owner(self, owner: int) -> Owner:
        return found(self.owner_by_id(owner), "agent or model")


class Mappings(Spaces):
    """The mappings of index/."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self._mappings: dict[int, Mapping] = {}
        self._mapping_rows: defaultdict[tuple[int, IndexKind], Rows[Mapping]] = defaultdict(Rows)
        self._mapping_ids: dict[tuple[int, IndexKind, str], int] = {}

    def mapping(self, owner: int, kind: IndexKind, key: str) -> Mapping | None:
        id = self._mapping_ids.get((owner, kind, key))
        return None if id is None else self._mappings[id]

    def mapping_by_id(self, mapping: int) -> Mapping | None:
        return self._mappings.get(mapping)

    def mappings(self, owner: int, kind: IndexKind, after: int = 0, limit: int = 1000) -> Sequence[Mapping]:
        return self._mapping_rows[owner, kind].page(after, limit)

    def set_mapping(self, owner: int, kind: IndexKind, key: str, session: str) -> Mapping:
        self.set_mappings(owner, kind, {key: session})
        return found(self.mapping(owner, kind, key), "mapping")

    def set_mappings(self, owner: int, kind: IndexKind, sessions: dict[str, str]) -> None:
        self._require_owner(owner)
        if not self._index[owner].names.keys() >= set(sessions.values()):
            raise Missing("no such session")
        for key, session in sessions.items():
            self._map(owner, kind, key, session)

    def remove_mapping(self, mapping: int) -> None:
        row = found(self.mapping_by_id(mapping), "mapping")
        del self._mappings[mapping], self._mapping_ids[row.owner, row.kind, row.key]
        self._mapping_rows[row.owner, row.kind].pop(mapping)

    def _map(self, owner: int, kind: IndexKind, key: str, session: str) -> Mapping:
        old, now = self.mapping(owner, kind, key), self._clock()
        if old is not None and old.session == session:
            return old
        if old is None:
            row = Mapping(self._next_id(), owner, kind, key, session, now)
        else:
            row = msgspec.structs.replace(old, session=session, mtime=later(old.mtime, now))
        self._mappings[row.id] = row
        self._mapping_rows[owner, kind].put(row)
        self._mapping_ids[owner, kind, key] = row.id
        return row

    def _unmap(self, owner: int, session: str) -> list[tuple[IndexKind, str]]:
        """Removes every by-hash and by-uuid mapping to a session."""
        kinds: tuple[IndexKind, ...] = ("by-hash", "by-uuid")
        gone = [row for kind in kinds for row in self._mapping_rows[owner, kind] if row.session == session]
        for row in gone:
            self.remove_mapping(row.id)
        return [(row.kind, row.key) for row in gone]
