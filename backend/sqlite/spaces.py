"""Homes, shared places, agents and models, and what admins define: ``SpaceStore`` and ``DefinitionFiles``."""

from collections.abc import Sequence
from typing import Literal

from backend.errors import Exists, NotEmpty
from backend.facts import later
from backend.log_contract import found
from backend.rows import Owner, OwnerKind, Space
from backend.sqlite import rows
from backend.sqlite.core import Core, atomic, growing


class Spaces(Core):
    """Spaces and the owners in them."""

    def space(self, name: str) -> Space | None:
        return rows.made(Space, self._database.one(f"{rows.SPACE} WHERE name = ?", name))

    def spaces(self, prefix: Literal["home/", "shared/"]) -> Sequence[Space]:
        return [Space(*row) for row in self._database.all(f"{rows.SPACE} WHERE name GLOB ? ORDER BY id", f"{prefix}*")]

    @growing
    def add_space(self, name: str, uid: int, gid: int, mode: int) -> Space:
        if self.space(name) is not None:
            raise Exists(f"{name} exists")
        values = (name, uid, gid, mode, self._clock())
        id = self._database.insert("INSERT INTO space (name, uid, gid, mode, mtime) VALUES (?, ?, ?, ?, ?)", *values)
        return Space(id, *values)

    @growing
    def change_space(self, name: str, uid: int, gid: int, mode: int) -> Space:
        space = found(self.space(name), "space")
        values = (uid, gid, mode, later(space.mtime, self._clock()))
        self._database.run("UPDATE space SET uid = ?, gid = ?, mode = ?, mtime = ? WHERE id = ?", (*values, space.id))
        return Space(space.id, name, *values)

    @atomic
    def remove_space(self, name: str) -> None:
        space = found(self.space(name), "space")
        held = "SELECT 1 FROM owner WHERE space = ?1 UNION ALL SELECT 1 FROM archive_directory WHERE space = ?1 LIMIT 1"
        if self._database.one(held, name) is not None:
            raise NotEmpty(f"{name} holds an agent, a model or archived sessions")
        self._database.run("DELETE FROM space WHERE id = ?", (space.id,))

    def owner(self, space: str, kind: OwnerKind, name: str) -> Owner | None:
        where = "WHERE space = ? AND kind = ? AND name = ?"
        return self._owner_of(self._database.one(f"{rows.OWNER} {where}", space, kind, name))

    def owners(self, space: str, kind: OwnerKind) -> Sequence[Owner]:
        found_rows = self._database.all(f"{rows.OWNER} WHERE space = ? AND kind = ? ORDER BY id", space, kind)
        return [owner for row in found_rows if (owner := self._owner_of(row))]

    @growing
    def add_owner(self, space: str, kind: OwnerKind, name: str, uid: int, gid: int) -> Owner:
        found(self.space(space), "space")
        if self.owner(space, kind, name) is not None:
            raise Exists(f"{kind} {name} exists")
        now = self._clock()
        values = (space, kind, name, uid, gid, now, None, now, 0, now)
        return Owner(self._database.insert(_ADD_OWNER, *values), *values)

    @atomic
    def remove_owner(self, owner: int) -> None:
        row = self._require_owner(owner)
        live = "SELECT 1 FROM session WHERE owner = ? AND archive IS NULL LIMIT 1"
        if self._database.one(live, owner) is not None:
            raise NotEmpty(f"{row.kind} {row.name} has sessions")
        # Archived sessions stay, without an owner.
        self._database.run("DELETE FROM owner WHERE id = ?", (owner,))
        self._sessions.clear()
        self._owners.pop(owner, None)
        self._tops.pop(owner, None)

    def _require_owner(self, owner: int) -> Owner:
        return found(self.owner_by_id(owner), "agent or model")


class Definitions(Core):
    """``agent/<agent>.d/`` and ``model/<provider>/<model>.d/``."""

    def definitions(self, kind: OwnerKind) -> Sequence[tuple[int, str, int]]:
        return self._database.all("SELECT id, name, mtime FROM definition WHERE kind = ? ORDER BY id", kind)

    @growing
    def add_definition(self, kind: OwnerKind, name: str) -> int:
        if self._database.one("SELECT 1 FROM definition WHERE kind = ? AND name = ?", kind, name) is not None:
            raise Exists(f"{kind} {name} exists")
        return self._database.insert(
            "INSERT INTO definition (kind, name, mtime) VALUES (?, ?, ?)", kind, name, self._clock()
        )

    @atomic
    def remove_definition(self, definition: int) -> None:
        self._require_definition(definition)
        self._database.run("DELETE FROM definition WHERE id = ?", (definition,))

    def definition_value(self, definition: int, file: str) -> tuple[bytes, int] | None:
        self._require_definition(definition)
        sql = "SELECT content, mtime FROM definition_value WHERE definition = ? AND file = ?"
        value: tuple[bytes, int] | None = self._database.one(sql, definition, file)
        return value

    @growing
    def set_definition_value(self, definition: int, file: str, content: bytes) -> int:
        old = self.definition_value(definition, file)
        mtime = later(old[1] if old else 0, self._clock())
        self._database.run(_SET_VALUE, (definition, file, content, mtime))
        return mtime

    def _require_definition(self, definition: int) -> None:
        found(self._database.one("SELECT 1 FROM definition WHERE id = ?", definition), "definition")


_ADD_OWNER = (
    "INSERT INTO owner (space, kind, name, uid, gid, mtime, current, current_mtime, list_size, list_mtime)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SET_VALUE = (
    "INSERT INTO definition_value (definition, file, content, mtime) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (definition, file) DO UPDATE SET content = excluded.content, mtime = excluded.mtime"
)
