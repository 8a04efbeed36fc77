"""Directories of models' providers, in spaces and among the definitions (spec 1.2).

One is there while a model of it is, or since somebody made it, until it is removed or the mount ends.
"""

from collections.abc import Hashable, Iterable

from backend.errors import Exists, NotEmpty
from ctxfs.files.directories import Found
from ctxfs.inodes import Interned

_MADE = 1 << 40


class Providers:
    """``place`` is the id of a space, or None for the definitions; ``models`` are ``(id, provider/model)`` there."""

    def __init__(self, interned: Interned[tuple[Hashable, ...]]) -> None:
        self._interned = interned
        self._made: dict[tuple[int | None, str], int] = {}
        self._last = 0

    def find(self, place: int | None, name: str, models: Iterable[tuple[int, str]]) -> int | None:
        """The interned number of a provider that is there."""
        there = (place, name) in self._made or name in _first_ids(models)
        return self._number(place, name) if there else None

    def each(self, place: int | None, models: Iterable[tuple[int, str]]) -> list[Found]:
        """Those of models come first, by their first model's id; the others in the order in which they were made."""
        known = _first_ids(models)
        offsets = known | {
            name: _MADE + made for (where, name), made in self._made.items() if where == place and name not in known
        }
        in_order = sorted((offset, name) for name, offset in offsets.items())
        return [Found(offset, name, self._number(place, name)) for offset, name in in_order]

    def make(self, place: int | None, name: str, models: Iterable[tuple[int, str]]) -> int:
        """``Exists`` where it is there already."""
        if self.find(place, name, models) is not None:
            raise Exists(f"provider {name!r} exists")
        self._last += 1
        self._made[place, name] = self._last
        return self._number(place, name)

    def remove(self, place: int | None, name: str, models: Iterable[tuple[int, str]]) -> None:
        """``NotEmpty`` while it has models."""
        if name in _first_ids(models):
            raise NotEmpty(f"provider {name!r} still has models")
        self._made.pop((place, name), None)

    def _number(self, place: int | None, name: str) -> int:
        return self._interned.id(("provider", place, name))


def _first_ids(models: Iterable[tuple[int, str]]) -> dict[str, int]:
    """Providers with the lowest id of a model of theirs."""
    first: dict[str, int] = {}
    for number, model in sorted(models):
        provider, slash, _ = model.partition("/")
        if slash:
            first.setdefault(provider, number)
    return first
