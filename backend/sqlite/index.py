"""The files of ``index/`` and what keeps them true: ``IndexFiles`` (spec 1.2).

``_list_new``, ``_unlist`` and ``_remap`` belong into the transaction of the change they follow.
"""

from collections.abc import Sequence
from typing import Literal

from backend.log_contract import found, listed_key
from backend.names import cwd_key
from backend.rows import IndexKind, Mapping, Owner, Removed, Session
from backend.sqlite import rows
from backend.sqlite.core import atomic, growing
from backend.sqlite.spaces import Spaces

Change = Literal["new", "changed", "gone"]


class Index(Spaces):
    """index/list, index/current and the mappings."""

    def list_content(self, owner: int) -> bytes:
        self._require_owner(owner)
        listed = self._database.all(f"SELECT id, name {rows.LISTED}", owner)
        risen = {session.id: session.name for session in self._waiting.risen(owner)}
        names = [*risen.values(), *(name for id, name in listed if id not in risen)]
        return "".join([name + "\n" for name in names]).encode()

    @growing
    def set_current(self, owner: int, name: str) -> Owner:
        row = self._require_owner(owner)
        self._live(owner, name)
        if row.current == name:
            return row
        self._set_current(owner, name)
        return self._require_owner(owner)

    def mapping(self, owner: int, kind: IndexKind, key: str) -> Mapping | None:
        self._settle_moves()
        where = "WHERE mapping.owner = ? AND kind = ? AND key = ?"
        return rows.made(Mapping, self._database.one(f"{rows.MAPPING} {where}", owner, kind, key))

    def mapping_by_id(self, mapping: int) -> Mapping | None:
        self._settle_moves()
        return rows.made(Mapping, self._database.one(f"{rows.MAPPING} WHERE mapping.id = ?", mapping))

    def mappings(self, owner: int, kind: IndexKind, after: int = 0, limit: int = 1000) -> Sequence[Mapping]:
        self._settle_moves()
        where = "WHERE mapping.owner = ? AND kind = ? AND mapping.id > ? ORDER BY mapping.id LIMIT ?"
        return [Mapping(*row) for row in self._database.all(f"{rows.MAPPING} {where}", owner, kind, after, limit)]

    @growing
    def set_mapping(self, owner: int, kind: IndexKind, key: str, session: str) -> Mapping:
        self._require_owner(owner)
        self._map(owner, kind, key, self._live(owner, session))
        return found(self.mapping(owner, kind, key), "mapping")

    @growing
    def set_mappings(self, owner: int, kind: IndexKind, sessions: dict[str, str]) -> None:
        self._require_owner(owner)
        for key, session in sessions.items():
            self._map(owner, kind, key, self._live(owner, session))

    @atomic
    def remove_mapping(self, mapping: int) -> None:
        found(self.mapping_by_id(mapping), "mapping")
        self._database.run("DELETE FROM mapping WHERE id = ?", (mapping,))

    def _live(self, owner: int, name: str) -> int:
        sql = "SELECT id FROM session WHERE owner = ? AND name = ? AND archive IS NULL"
        [session] = found(self._database.one(sql, owner, name), "session")
        return int(session)

    def _set_current(self, owner: int, name: str | None) -> None:
        sql = "UPDATE owner SET current = ?, current_mtime = max(current_mtime + 1, ?) WHERE id = ?"
        self._change_owner(owner, sql, name, self._clock())

    def _list_new(self, owner: int, session: Session) -> None:
        """A session that was made: it is on top of the list, and current where none is."""
        now, growth = self._clock(), len(session.name) + 1
        self._change_owner(owner, _GROW_LIST, growth, now, now)
        if self._require_owner(owner).current is None:
            self._set_current(owner, session.name)
        self._tops[owner] = session.id
        if key := listed_key(session):
            self._remap(owner, key)

    def _unlist(self, owner: int, session: Session) -> Removed:
        """A live session that goes away: takes it and what leads to it out of the index."""
        now, growth = self._clock(), -len(session.name) - 1
        self._change_owner(owner, _GROW_LIST, growth, now, now)
        self._tops.pop(owner, None)
        gone: list[tuple[IndexKind, str]] = self._database.run(
            "DELETE FROM mapping WHERE session = ? AND kind <> 'by-cwd' RETURNING kind, key", (session.id,)
        ).fetchall()
        self._database.run("UPDATE session SET cwd_key = NULL WHERE id = ?", (session.id,))
        changed: list[tuple[IndexKind, str]] = []
        if key := listed_key(session):
            change = self._remap(owner, key)
            if change is not None:
                (gone if change == "gone" else changed).append(("by-cwd", key))
        return Removed(True, tuple(gone), tuple(changed))

    def _move_cwd(self, before: Session, after: Session) -> dict[str, Change]:
        """A session that recorded a cwd: stores it, and what that changed in by-cwd."""
        key = cwd_key(after.cwd)
        self._database.run(rows.UPDATE_CWD, rows.moved(after))
        if after.owner is None:
            return {}
        keys = dict.fromkeys(name for name in (listed_key(before), key) if name is not None)
        changes = ((name, self._remap(after.owner, name)) for name in keys)
        return {name: change for name, change in changes if change is not None}

    def _remap(self, owner: int, key: str) -> Change | None:
        """Makes by-cwd/<key> lead to the live session that recorded that cwd last; what that changed."""
        holder = self._database.one(_HOLDER, owner, key)
        if holder is not None:
            return self._map(owner, "by-cwd", key, holder[0])
        sql = "DELETE FROM mapping WHERE owner = ? AND kind = 'by-cwd' AND key = ?"
        return "gone" if self._database.run(sql, (owner, key)).rowcount else None

    def _map(self, owner: int, kind: IndexKind, key: str, session: int) -> Change | None:
        sql = "SELECT id, session FROM mapping WHERE owner = ? AND kind = ? AND key = ?"
        old = self._database.one(sql, owner, kind, key)
        if old is None:
            sql = "INSERT INTO mapping (owner, kind, key, session, mtime) VALUES (?, ?, ?, ?, ?)"
            self._database.run(sql, (owner, kind, key, session, self._clock()))
            return "new"
        id, leads_to = old
        if leads_to == session:
            return None
        sql = "UPDATE mapping SET session = ?, mtime = max(mtime + 1, ?) WHERE id = ?"
        self._database.run(sql, (session, self._clock(), id))
        return "changed"


_HOLDER = (
    "SELECT id FROM session INDEXED BY session_cwd"
    " WHERE owner = ? AND archive IS NULL AND cwd_key = ? ORDER BY cwd_seq DESC LIMIT 1"
)
_GROW_LIST = (
    "UPDATE owner SET list_size = list_size + ?, list_mtime = max(list_mtime + 1, ?), mtime = max(mtime + 1, ?)"
    " WHERE id = ?"
)
