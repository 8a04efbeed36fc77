"""What admins define: ``agent/<agent>.d/`` and ``model/<provider>/<model>.d/`` as directories of plain files."""

import os
import shutil
from collections.abc import Sequence

from backend.errors import Exists, InvalidValue
from backend.facts import later
from backend.jsonl.catalogue import Catalogue, DefinitionRecord
from backend.jsonl.disk import is_directory, make_directories, read_small, regular, replace, reported, stamp
from backend.jsonl.log import Workshop
from backend.jsonl.paths import component, definition_names, definition_path, is_owner
from backend.jsonl.spaces import Spaces
from backend.log_contract import found
from backend.rows import OwnerKind

_MAX_VALUE = 1 << 20
_KINDS: tuple[OwnerKind, OwnerKind] = ("agent", "model")


class Definitions(Spaces):
    """``DefinitionFiles`` over a directory."""

    def __init__(self, directory: str, catalogue: Catalogue, shared: Workshop) -> None:
        super().__init__(directory, catalogue, shared)
        self._discover_definitions()

    def definitions(self, kind: OwnerKind) -> Sequence[tuple[int, str, int]]:
        with reported():
            return [
                (record.id, record.name, max(1, os.lstat(self._of(record)).st_mtime_ns))
                for record in self._catalogue.all(DefinitionRecord)
                if record.kind == kind
            ]

    def add_definition(self, kind: OwnerKind, name: str) -> int:
        if not is_owner(kind, name):
            raise InvalidValue(f"{name!r} is no name of an {kind}")
        record = DefinitionRecord(self._catalogue.next_id(), kind, name)
        if is_directory(self._of(record)):
            raise Exists(f"{kind} {name} exists")
        with reported():
            make_directories(self._of(record))
            stamp(self._of(record), self._shared.clock.tick())
            self._catalogue.put(record)
        self._synced(self._of(record))
        return record.id

    def remove_definition(self, definition: int) -> None:
        record = self._require_definition(definition)
        path = self._of(record)
        hidden = f"{os.path.dirname(path)}/.gone-{definition}"
        with reported():
            os.rename(path, hidden)
            self._catalogue.drop(definition)
        shutil.rmtree(hidden, ignore_errors=True)
        self._shared.durability.add((os.path.dirname(path),))

    def definition_value(self, definition: int, file: str) -> tuple[bytes, int] | None:
        path = self._file(definition, file)
        content, stat = read_small(path, _MAX_VALUE), regular(path)
        return None if content is None or stat is None else (content, max(1, stat.st_mtime_ns))

    def set_definition_value(self, definition: int, file: str, content: bytes) -> int:
        path = self._file(definition, file)
        directory, old = os.path.dirname(path), regular(path)
        mtime = later(old.st_mtime_ns if old else 0, self._shared.clock.tick())
        with reported():
            made = os.lstat(directory).st_mtime_ns
            replace(path, content, mtime)
            stamp(directory, made)
        self._shared.durability.add((path, directory))
        return mtime

    def _discover_definitions(self) -> None:
        known = {(record.kind, record.name): record.id for record in self._catalogue.all(DefinitionRecord)}
        for kind in _KINDS:
            for name in definition_names(self._directory, kind):
                if known.pop((kind, name), None) is None:
                    self._catalogue.put(DefinitionRecord(self._catalogue.next_id(), kind, name))
        self._catalogue.drop(*known.values())

    def _of(self, record: DefinitionRecord) -> str:
        return f"{self._directory}/{definition_path(record.kind, record.name)}"

    def _file(self, definition: int, file: str) -> str:
        return f"{self._of(self._require_definition(definition))}/{component(file)}"

    def _require_definition(self, definition: int) -> DefinitionRecord:
        return found(self._catalogue.get(DefinitionRecord, definition), "definition")
