"""Agents and models with their live sessions and the files of ``index/`` (spec 1.2): owners and ``IndexFiles``.

What an owner holds is found when it is first asked for: the names of its sessions at once, the order of index/list
and by-cwd (which need facts of every session) when something needs them. index/list and by-cwd are views: a disk that
fails to take them refuses nothing, they are what the sessions say when the store is opened next. A long index/list is
written when the store closes; its mtime is kept all the time.
"""

import os
import shutil
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from backend.errors import Exists, InvalidValue, Missing, NotEmpty
from backend.facts import later
from backend.jsonl.catalogue import Catalogue, MappingRecord, OwnerRecord, SessionRecord
from backend.jsonl.disk import create, make_directories, names, overwrite, remove_if_there, replace, reported, stamp
from backend.jsonl.foreign import read_value
from backend.jsonl.held import Held, Keys, file_mtime, owner_row
from backend.jsonl.log import Workshop
from backend.jsonl.paths import CWD_KEYS, OUTER_KEYS, is_key, is_owner
from backend.jsonl.spaces import Spaces
from backend.log_contract import found
from backend.memory.parts import OwnerIndex, Rows
from backend.rows import IndexKind, Mapping, Owner, OwnerKind, Removed, Session

_EAGER_LIST = 2048


class Index(Spaces):
    """Owners and their index. Sessions themselves are another part's: ``_facts`` and ``_discover`` ask for them."""

    def __init__(self, directory: str, catalogue: Catalogue, shared: Workshop) -> None:
        super().__init__(directory, catalogue, shared)
        self._owners: dict[int, Held] = {}
        self._live: dict[int, dict[str, int]] = {}
        self._mapping_ids: dict[tuple[int, IndexKind, str], int] = {}
        for session in catalogue.all(SessionRecord):
            if session.archive is None and session.owner is not None:
                self._live.setdefault(session.owner, {})[session.name] = session.id
        for mapping in catalogue.all(MappingRecord):
            self._mapping_ids[mapping.owner, mapping.kind, mapping.key] = mapping.id

    @abstractmethod
    def _facts(self, session: int) -> Session:
        """The row of a session; of one that nobody has looked at yet perhaps without what only its log says."""

    @abstractmethod
    def _discover(self, owner: OwnerRecord, path: str, known: dict[str, int]) -> dict[str, int]:
        """The live sessions in a session/ directory (``OSError``); ``known`` are those in the catalogue."""

    def owner(self, space: str, kind: OwnerKind, name: str) -> Owner | None:
        id = self._owner_ids.get((space, kind, name))
        return None if id is None else self._held(id).row

    def owner_by_id(self, owner: int) -> Owner | None:
        return self._held(owner).row if self._catalogue.get(OwnerRecord, owner) else None

    def owners(self, space: str, kind: OwnerKind) -> Sequence[Owner]:
        ids = [id for (place, of, _), id in self._owner_ids.items() if (place, of) == (space, kind)]
        return [self._held(id).row for id in ids]

    def add_owner(self, space: str, kind: OwnerKind, name: str, uid: int, gid: int) -> Owner:
        found(self.space(space), "space")
        if (space, kind, name) in self._owner_ids:
            raise Exists(f"{kind} {name} exists")
        if not is_owner(kind, name):
            raise InvalidValue(f"{name!r} is no name of an {kind}")
        record = OwnerRecord(self._catalogue.next_id(), space, kind, name, uid, gid)
        path = f"{self._owner_path(record)}/session"
        with reported():
            for inner in (CWD_KEYS, *OUTER_KEYS):
                make_directories(f"{path}/index/{inner}")
                self._synced(f"{path}/index/{inner}")
            mtime = self._shared.clock.tick()
            create(f"{path}/index/list", b"", mtime)
            stamp(path, mtime)
            self._catalogue.put(record)
        self._owner_ids[space, kind, name] = record.id
        return self._held(record.id).row

    def remove_owner(self, owner: int) -> None:
        held = self._held(owner)
        row, record = held.row, found(self._catalogue.get(OwnerRecord, owner), "agent or model")
        if held.names:
            raise NotEmpty(f"{row.kind} {row.name} has sessions")
        gone = f"{os.path.dirname(held.path)}/.gone-{owner}"
        with reported():
            os.rename(held.path, gone)
            self._catalogue.drop(owner, *self._belongings({owner}))
            self._synced(os.path.dirname(held.path))
        del self._owners[owner], self._owner_ids[row.space, row.kind, row.name]
        shutil.rmtree(gone, ignore_errors=True)
        # The ordinary directories beside session/ are not the store's to remove.
        with suppress(OSError):
            os.rmdir(self._owner_path(record))

    def list_content(self, owner: int) -> bytes:
        return self._list_content(self._held(owner))

    def set_current(self, owner: int, name: str) -> Owner:
        held = self._held(owner)
        if name not in held.names:
            raise Missing("no such session")
        if held.row.current != name:
            with reported():
                self._set_current(held, name)
        return held.row

    def mapping(self, owner: int, kind: IndexKind, key: str) -> Mapping | None:
        if self._catalogue.get(OwnerRecord, owner) is None:
            return None
        rows = self._mappings(self._held(owner), kind)
        return rows.get(self._mapping_ids.get((owner, kind, key), 0))

    def mapping_by_id(self, mapping: int) -> Mapping | None:
        record = self._catalogue.get(MappingRecord, mapping)
        return None if record is None else self.mapping(record.owner, record.kind, record.key)

    def mappings(self, owner: int, kind: IndexKind, after: int = 0, limit: int = 1000) -> Sequence[Mapping]:
        if self._catalogue.get(OwnerRecord, owner) is None:
            return []
        return self._mappings(self._held(owner), kind).page(after, limit)

    def set_mapping(self, owner: int, kind: IndexKind, key: str, session: str) -> Mapping:
        held = self._held(owner)
        if session not in held.names:
            raise Missing("no such session")
        if not is_key(kind, key):
            raise InvalidValue(f"{key!r} is no name in {kind}")
        old = self.mapping(owner, kind, key)
        if old and old.session == session:
            return old
        row = self._next_mapping(held, kind, key, session, old)
        with reported():
            self._write_mapping(held, row)
            self._catalogue.put(MappingRecord(row.id, owner, kind, key))
        return self._take_mapping(held, row)

    def set_mappings(self, owner: int, kind: IndexKind, sessions: dict[str, str]) -> None:
        if not self._held(owner).names.keys() >= set(sessions.values()):
            raise Missing("no such session")
        for key, session in sessions.items():
            self.set_mapping(owner, kind, key, session)

    def remove_mapping(self, mapping: int) -> None:
        row = found(self.mapping_by_id(mapping), "mapping")
        held = self._held(row.owner)
        with reported():
            self._erase_mapping(held, row)
        self._forget_mapping(held, row)

    def _held(self, owner: int) -> Held:
        """What an owner holds, found now if nobody asked before; ``Missing``."""
        held = self._owners.get(owner)
        if held is None:
            record = found(self._catalogue.get(OwnerRecord, owner), "agent or model")
            path = f"{self._owner_path(record)}/session"
            with reported():
                names = self._discover(record, path, self._live.pop(owner, {}))
                held = self._owners[owner] = Held(owner_row(record, path, names), path, names)
        return held

    def _order(self, held: Held) -> OwnerIndex:
        """The order of an owner's sessions; the first time, all of them are looked at."""
        if held.order is None:
            order, holders = OwnerIndex(), dict[str, int | None]()
            rows = [self._facts(id) for id in held.ids]
            # Recorded cwds compete in the order they were recorded in, the list is in that of the last commit.
            for row in sorted(rows, key=lambda row: row.cwd_seq):
                holders |= order.put(row).keys
            for row in sorted(rows, key=lambda row: row.seq):
                order.put(row)
            held.order = order
            held.mappings[CWD_KEYS] = Rows()
            self._read_cwd_mappings(held, {key: order.rows.get(id) for key, id in holders.items() if id is not None})
        return held.order

    def _list_content(self, held: Held) -> bytes:
        return b"".join(row.name.encode() + b"\n" for row in self._order(held).by_update() if row)

    def _relist(self, session: Session) -> tuple[bool, Keys]:
        """Brings the index up to a session that is new or changed: whether index/list did, and keys of by-cwd."""
        if session.owner is None:
            return False, Keys()
        held = self._held(session.owner)
        change = self._order(held).put(session)
        if change.listed:
            self._note_list(held)
        return change.listed, self._remap(held, change.keys)

    def _enlist(self, session: Session) -> None:
        """A new live session."""
        held = self._held(found(session.owner, "agent or model"))
        self._order(held)
        held.add(session.name, session.id)
        self._note_directory(held, len(session.name) + 1)
        self._relist(session)
        if held.row.current is None:
            with suppress(OSError):
                self._set_current(held, session.name)

    def _unlist(self, session: Session) -> Removed:
        """A session that is not live any more."""
        held = self._held(found(session.owner, "agent or model"))
        rows = [row for kind in OUTER_KEYS for row in self._mappings(held, kind) if row.session == session.name]
        change = self._order(held).remove(session)
        held.remove(session.name)
        for row in rows:
            # A file that stays leads nowhere, and is passed over when the store is opened next.
            with suppress(OSError):
                self._erase_mapping(held, row)
            self._forget_mapping(held, row)
        keys = self._remap(held, change.keys)
        self._note_directory(held, -len(session.name) - 1)
        self._note_list(held)
        if held.row.current == session.name:
            with suppress(OSError):
                self._set_current(held, None)
        gone = (*((row.kind, row.key) for row in rows), *((CWD_KEYS, key) for key in keys.gone))
        return Removed(True, gone, tuple((CWD_KEYS, key) for key in keys.changed))

    def _set_current(self, held: Held, name: str | None) -> None:
        mtime, path = later(held.row.current_mtime, self._shared.clock.tick()), held.index_file("current")
        held.row = msgspec.structs.replace(held.row, current=name, current_mtime=mtime)
        if name is None:
            remove_if_there(path)
        else:
            self._replace(path, f"{name}\n".encode(), mtime)

    def _note_directory(self, held: Held, growth: int) -> None:
        """A session came or went: session/ has changed, and the size of index/list."""
        mtime = later(held.row.mtime, self._shared.clock.tick())
        held.row = msgspec.structs.replace(held.row, mtime=mtime, list_size=held.row.list_size + growth)
        with suppress(OSError):
            stamp(held.path, mtime)
        self._shared.durability.add((held.path,))

    def _note_list(self, held: Held) -> None:
        """index/list has changed."""
        mtime, path = later(held.row.list_mtime, self._shared.clock.tick()), held.index_file("list")
        held.row = msgspec.structs.replace(held.row, list_mtime=mtime)
        held.stale_list = True
        with suppress(OSError):
            make_directories(os.path.dirname(path))
            if held.row.list_size <= _EAGER_LIST:
                self._write_list(held)
            else:
                stamp(path, mtime)

    def _write_list(self, held: Held) -> None:
        if held.stale_list:
            overwrite(held.index_file("list"), self._list_content(held), held.row.list_mtime)
            held.stale_list = False

    def _replace(self, path: str, content: bytes, mtime: int) -> None:
        """Writes a file of the index; a foreign tree may lack the directory."""
        directory = os.path.dirname(path)
        make_directories(directory)
        replace(path, content, mtime)
        self._shared.durability.add((path, directory))

    def _mappings(self, held: Held, kind: IndexKind) -> Rows[Mapping]:
        """The mappings of a kind, read now if nobody asked before."""
        if kind == CWD_KEYS:
            self._order(held)
        elif kind not in held.mappings:
            held.mappings[kind] = Rows()
            with reported():
                self._read_mappings(held, kind)
        return held.mappings[kind]

    def _read_mappings(self, held: Held, kind: IndexKind) -> None:
        new: list[MappingRecord] = []
        for key in names(held.index_file(kind)):
            session = read_value(held.index_file(f"{kind}/{key}"))
            if not is_key(kind, key) or session not in held.names:
                continue
            id = self._mapping_ids.get((held.row.id, kind, key))
            if id is None:
                id = self._catalogue.next_id()
                new.append(MappingRecord(id, held.row.id, kind, key))
            mtime = file_mtime(held.index_file(f"{kind}/{key}"), held.row.mtime)
            self._take_mapping(held, Mapping(id, held.row.id, kind, key, session, mtime))
        self._catalogue.put(*new)

    def _read_cwd_mappings(self, held: Held, holders: dict[str, Session | None]) -> None:
        """by-cwd as the sessions say; a file that says otherwise is overruled."""
        for key, holder in holders.items():
            if holder is None:
                continue
            path = held.index_file(f"{CWD_KEYS}/{key}")
            mtime = file_mtime(path, holder.cwd_mtime)
            if read_value(path) != holder.name:
                # Later than what the file says, and the same whenever the store is opened.
                mtime = max(mtime, holder.cwd_mtime) + 1
            id = self._mapping_ids.get((held.row.id, CWD_KEYS, key)) or self._cwd_mapping_id(held, key)
            self._take_mapping(held, Mapping(id, held.row.id, CWD_KEYS, key, holder.name, mtime))

    def _cwd_mapping_id(self, held: Held, key: str) -> int:
        id = self._catalogue.next_id()
        with suppress(OSError):
            self._catalogue.put(MappingRecord(id, held.row.id, CWD_KEYS, key))
        return id

    def _remap(self, held: Held, holders: dict[str, int | None]) -> Keys:
        """Makes by-cwd what the order says."""
        new: list[str] = []
        changed: list[str] = []
        gone: list[str] = []
        for key, holder in holders.items():
            before = self.mapping(held.row.id, CWD_KEYS, key)
            session = self._order(held).rows.get(holder) if holder is not None else None
            if session is not None:
                self._map_cwd(held, key, session.name, before)
                (changed if before else new).append(key)
            elif before is not None:
                with suppress(OSError):
                    self._erase_mapping(held, before)
                self._forget_mapping(held, before)
                gone.append(key)
        return Keys(tuple(new), tuple(changed), tuple(gone))

    def _map_cwd(self, held: Held, key: str, session: str, old: Mapping | None) -> None:
        row = self._next_mapping(held, CWD_KEYS, key, session, old)
        with suppress(OSError):
            if old is None:
                self._catalogue.put(MappingRecord(row.id, held.row.id, CWD_KEYS, key))
            make_directories(held.index_file(CWD_KEYS))
            overwrite(held.index_file(f"{CWD_KEYS}/{key}"), f"{session}\n".encode(), row.mtime)
        self._take_mapping(held, row)

    def _next_mapping(self, held: Held, kind: IndexKind, key: str, session: str, old: Mapping | None) -> Mapping:
        now = self._shared.clock.tick()
        if old is None:
            return Mapping(self._catalogue.next_id(), held.row.id, kind, key, session, now)
        return msgspec.structs.replace(old, session=session, mtime=later(old.mtime, now))

    def _write_mapping(self, held: Held, row: Mapping) -> None:
        self._replace(held.index_file(f"{row.kind}/{row.key}"), f"{row.session}\n".encode(), row.mtime)

    def _take_mapping(self, held: Held, row: Mapping) -> Mapping:
        held.mappings[row.kind].put(row)
        self._mapping_ids[row.owner, row.kind, row.key] = row.id
        return row

    def _erase_mapping(self, held: Held, row: Mapping) -> None:
        remove_if_there(held.index_file(f"{row.kind}/{row.key}"))
        self._shared.durability.add((held.index_file(row.kind),))
        self._catalogue.drop(row.id)

    def _forget_mapping(self, held: Held, row: Mapping) -> None:
        held.mappings[row.kind].pop(row.id)
        del self._mapping_ids[row.owner, row.kind, row.key]
