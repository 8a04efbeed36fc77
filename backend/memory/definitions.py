"""What admins define in the memory store: ``DefinitionFiles``."""

from collections.abc import Callable, Sequence

from backend.errors import Exists
from backend.facts import later
from backend.log_contract import found
from backend.memory.spaces import Spaces
from backend.rows import OwnerKind


class Definitions(Spaces):
    """``agent/<agent>.d/`` and ``model/<provider>/<model>.d/``."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self._definitions: dict[int, tuple[OwnerKind, str, int]] = {}
        self._values: dict[int, dict[str, tuple[bytes, int]]] = {}

    def definitions(self, kind: OwnerKind) -> Sequence[tuple[int, str, int]]:
        return [(id, name, mtime) for id, (of, name, mtime) in self._definitions.items() if of == kind]

    def add_definition(self, kind: OwnerKind, name: str) -> int:
        if any(row[:2] == (kind, name) for row in self._definitions.values()):
            raise Exists(f"{kind} {name} exists")
        id = self._next_id()
        self._definitions[id] = (kind, name, self._clock())
        self._values[id] = {}
        return id

    def remove_definition(self, definition: int) -> None:
        found(self._definitions.pop(definition, None), "definition")
        del self._values[definition]

    def definition_value(self, definition: int, file: str) -> tuple[bytes, int] | None:
        return found(self._values.get(definition), "definition").get(file)

    def set_definition_value(self, definition: int, file: str, content: bytes) -> int:
        values = found(self._values.get(definition), "definition")
        mtime = later(values[file][1] if file in values else 0, self._clock())
        values[file] = (content, mtime)
        return mtime
