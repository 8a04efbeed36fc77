"""Which sessions there are: the catalogue against the directories (spec 2.9: a tree is mounted as it is).

Found when an owner, an archive directory or a session id is first asked for. A session that was copied in gets a row
id; its session id is the one in its order.jsonl, or made of its path. Foreign sessions take their place in the order
of commits by their updated_at, those of one second by index/list.
"""

import hashlib
import os
import uuid

import msgspec

from backend.entries import FORMAT_VERSION, SessionHeader
from backend.errors import CtxError
from backend.jsonl.archive import Archive
from backend.jsonl.catalogue import ArchiveRecord, Catalogue, OwnerRecord, SessionRecord
from backend.jsonl.disk import directories, is_directory, open_regular, read_small
from backend.jsonl.foreign import updated_at
from backend.jsonl.handles import ORDER, STORE
from backend.jsonl.log import Workshop
from backend.jsonl.making import remove_leftovers
from backend.jsonl.order import read_header
from backend.jsonl.paths import HIDDEN
from backend.log_contract import first_row, found, scope_of
from backend.names import is_session_name
from backend.rows import Session

_PATHS = uuid.UUID("6f2f0f5e-6d1c-5a0e-9b59-0a5b1f6c7a11")
_MAX_LIST = 1 << 24


class Discovery(Archive):
    """The records of sessions, by row id and by session id."""

    def __init__(self, directory: str, catalogue: Catalogue, shared: Workshop) -> None:
        super().__init__(directory, catalogue, shared)
        self._unplaced = f"{directory}/{HIDDEN}/session"
        self._ids = {record.session_id: record.id for record in catalogue.all(SessionRecord)}
        self._all_found = False
        self._discover_unplaced()

    def _session_record(self, session: int) -> SessionRecord | None:
        """The record of a session that is there."""
        record = self._catalogue.get(SessionRecord, session)
        if record is None:
            return None
        # Looking at where it should be drops the record of one that is gone.
        if record.archive is not None:
            self._directory_shelf(record.archive)
        elif record.owner is not None:
            self._held(record.owner)
        return self._catalogue.get(SessionRecord, session)

    def _session_id(self, session_id: str) -> int | None:
        """The row id of a session by its id, wherever it is."""
        record = self._session_record(self._ids.get(session_id, 0))
        if record is None and not self._all_found:
            self._discover_all()
            record = self._session_record(self._ids.get(session_id, 0))
        return record.id if record else None

    def _discover_all(self) -> None:
        """Looks everywhere, once."""
        if self._all_found:
            return
        for owner in list(self._owner_ids.values()):
            self._held(owner)
        for space in self.spaces("home/"), self.spaces("shared/"):
            for place in space:
                self._discover_archive(place.name, None)
        self._all_found = True

    def _discover_archive(self, space: str, directory: int | None) -> None:
        for row in self.archive_directories(space, directory):
            self._discover_archive(space, row.id)

    def _session_path(self, record: SessionRecord) -> str:
        if record.archive is not None:
            return f"{self._shelf_path_of(record.archive)}/{record.name}"
        if record.owner is not None:
            owner = found(self._catalogue.get(OwnerRecord, record.owner), "agent or model")
            return f"{self._owner_path(owner)}/session/{record.name}"
        return f"{self._unplaced}/{_unplaced_name(record.session_id)}"

    def _blank(self, record: SessionRecord, header: SessionHeader, seq: int, now_ns: int) -> Session:
        """The row of the session before its first entry."""
        row = first_row(
            header,
            id=record.id,
            owner=record.owner,
            name=record.name,
            uid=record.uid,
            scope=record.scope,
            seq=seq,
            now_ns=now_ns,
        )
        return msgspec.structs.replace(row, archive=record.archive)

    def _blank_foreign(self, record: SessionRecord) -> Session:
        header = SessionHeader(
            session_id=record.session_id, format_version=FORMAT_VERSION, created_at=0, delegation_depth=0
        )
        return self._blank(record, header, record.seq, 1)

    def _discover(self, owner: OwnerRecord, path: str, known: dict[str, int]) -> dict[str, int]:
        remove_leftovers(path)
        there = [name for name in directories(path) if is_session_name(name)]
        names = {name: known.pop(name) for name in there if name in known}
        self._drop_sessions(list(known.values()))
        new = [name for name in there if name not in names]
        if new:
            names |= self._returned(owner, new)
            scope = scope_of(owner.space)
            for name in self._by_update(path, [name for name in new if name not in names]):
                record = SessionRecord(0, "", name, owner.uid, scope, owner.id)
                names[name] = self._record_found(record, f"{path}/{name}")
        return names

    def _found_archived(self, directory: ArchiveRecord, path: str, name: str) -> int:
        owner = self._owner_ids.get((directory.space, "agent", directory.name))
        if owner is None and directory.name.endswith(".d"):
            owner = self._owner_ids.get((directory.space, "model", directory.name.removesuffix(".d")))
        uid, scope = self._spaces[directory.space].uid, scope_of(directory.space)
        return self._record_found(SessionRecord(0, "", name, uid, scope, owner, directory.id), path)

    def _returned(self, owner: OwnerRecord, names: list[str]) -> dict[str, int]:
        """Sessions that were to be archived when we died, and are still here."""
        returned: dict[str, int] = {}
        for record in list(self._catalogue.all(SessionRecord)):
            if record.owner != owner.id or record.archive is None or record.name not in names:
                continue
            if not is_directory(self._session_path(record)):
                self._catalogue.put(msgspec.structs.replace(record, archive=None))
                self._archived.get(record.archive, {}).pop(record.name, None)
                returned[record.name] = record.id
        return returned

    def _by_update(self, path: str, names: list[str]) -> list[str]:
        """Names of new sessions, the last updated last."""
        listed = (read_small(f"{path}/index/list", _MAX_LIST) or b"").decode("ascii", "replace").splitlines()
        place = {name: -number for number, name in enumerate(listed)}
        return sorted(names, key=lambda name: (updated_at(f"{path}/{name}"), place.get(name, -len(listed)), name))

    def _record_found(self, record: SessionRecord, path: str) -> int:
        """Records a session that nobody knew."""
        session_id = _stored_id(path)
        ours = session_id is not None
        session_id = session_id or str(uuid.uuid5(_PATHS, os.path.relpath(path, self._directory)))
        if self._is_taken(session_id):
            session_id = str(uuid.uuid4())
        uid = os.lstat(path).st_uid if record.scope == "shared" else record.uid
        record = msgspec.structs.replace(
            record,
            id=self._catalogue.next_id(),
            session_id=session_id,
            uid=uid,
            seq=0 if ours else self._catalogue.next_seq(),
        )
        self._catalogue.put(record)
        self._ids[session_id] = record.id
        return record.id

    def _is_taken(self, session_id: str) -> bool:
        record = self._catalogue.get(SessionRecord, self._ids.get(session_id, 0))
        try:
            return record is not None and is_directory(self._session_path(record))
        except CtxError:
            return False

    def _drop_sessions(self, ids: list[int]) -> None:
        """Forgets sessions whose directories are gone."""
        for id in ids:
            record = self._catalogue.get(SessionRecord, id)
            if record and self._ids.get(record.session_id) == id:
                del self._ids[record.session_id]
        self._catalogue.drop(*ids)

    def _discover_unplaced(self) -> None:
        remove_leftovers(self._unplaced)
        there = set(directories(self._unplaced))
        for record in list(self._catalogue.all(SessionRecord)):
            if record.owner is None and record.archive is None:
                name = _unplaced_name(record.session_id)
                if name in there:
                    there.remove(name)
                else:
                    self._drop_sessions([record.id])
        for name in sorted(there):
            session_id = _stored_id(f"{self._unplaced}/{name}")
            if session_id is not None and _unplaced_name(session_id) == name and not self._is_taken(session_id):
                self._record_found(SessionRecord(0, "", "", 0, scope_of(None)), f"{self._unplaced}/{name}")


def _unplaced_name(session_id: str) -> str:
    """The directory of a session without a place: any id makes a name of one length."""
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _stored_id(path: str) -> str | None:
    """The session id in a session's order.jsonl; None in a foreign one."""
    if not is_directory(f"{path}/{STORE}"):
        return None
    try:
        descriptor = open_regular(f"{path}/{ORDER}", os.O_RDONLY)
    except OSError:
        return None
    try:
        return read_header(descriptor)[0].session_id
    except ValueError:
        return None
    finally:
        os.close(descriptor)
