"""Directories of models' providers, in spaces and among the definitions (spec 1.2).

One is there while a model of it is, or since somebody made it, until it is removed or the mount ends.
"""

import errno
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pyfuse3 import FUSEError

from backend.errors import Exists, NotEmpty
from ctxfs.files.directories import Caller, Found
from ctxfs.inodes import Key, Node, inode_of

if TYPE_CHECKING:
    from ctxfs.core import Core
    from ctxfs.subjects import ProviderSubject

EMPTY_LIMIT = 100
TOTAL_LIMIT = 10_000
_MADE = 1 << 40

Models = Iterable[tuple[int, str]]


class Providers:
    """Those that somebody made. ``place`` is the id of a space, or None for the definitions; ``models`` are
    ``(id, provider/model)`` there. They are in memory only, so their number is limited (``ENOSPC``)."""

    def __init__(self) -> None:
        self._made: dict[int | None, dict[str, int]] = {}
        self._last = 0

    def find(self, place: int | None, name: str, models: Models) -> Key | None:
        """The key of a provider that is there."""
        there = name in self._made.get(place, ()) or name in _first_ids(models)
        return _key(place, name) if there else None

    def each(self, place: int | None, models: Models) -> list[Found]:
        """Those of models come first, by their first model's id; the others in the order in which they were made."""
        known = _first_ids(models)
        made = {name: _MADE + number for name, number in self._made.get(place, {}).items()}
        in_order = sorted((offset, name) for name, offset in (made | known).items())
        return [Found(offset, name, _key(place, name)) for offset, name in in_order]

    def make(self, place: int | None, name: str, models: Models) -> Key:
        """``Exists`` where it is there already; ``ENOSPC`` beyond 100 without a model here, or 10 000 in all."""
        known = _first_ids(models)
        made = self._made.get(place, {})
        if name in made or name in known:
            raise Exists(f"provider {name!r} exists")
        if len(made.keys() - known) >= EMPTY_LIMIT or sum(map(len, self._made.values())) >= TOTAL_LIMIT:
            raise FUSEError(errno.ENOSPC)
        self._last += 1
        self._made.setdefault(place, made)[name] = self._last
        return _key(place, name)

    def remove(self, place: int | None, name: str, models: Models) -> None:
        """``NotEmpty`` while it has models."""
        if name in _first_ids(models):
            raise NotEmpty(f"provider {name!r} still has models")
        self._made.get(place, {}).pop(name, None)
        if not self._made.get(place):
            self._made.pop(place, None)


def _key(place: int | None, name: str) -> Key:
    return "provider", place, name


def _first_ids(models: Models) -> dict[str, int]:
    """Providers with the lowest id of a model of theirs."""
    first: dict[str, int] = {}
    for number, model in sorted(models):
        provider, slash, _ = model.partition("/")
        if slash:
            first.setdefault(provider, number)
    return first


def provider_directories(
    place: Callable[["Core", Any], int | None],
    models: Callable[["Core", Any], Models],
    check: Callable[["Core", Any, Caller], None],
    prepare: Callable[["Core", Any], None],
) -> tuple[Any, Any, Any, Any]:
    """The functions of one kind of directory of providers: find, list, make, remove.

    ``check`` refuses who may not change it; ``prepare`` is called before one is made.
    """

    def find(core: "Core", subject: Any, name: str, _uid: int) -> Key | None:
        return core.subjects.providers.find(place(core, subject), name, models(core, subject))

    def each(core: "Core", subject: Any, after: int, _uid: int) -> Iterable[Found]:
        providers = core.subjects.providers.each(place(core, subject), models(core, subject))
        return [found for found in providers if found.offset > after]

    def make(core: "Core", subject: Any, name: str, caller: Caller) -> Key:
        check(core, subject, caller)
        prepare(core, subject)
        return core.subjects.providers.make(place(core, subject), name, models(core, subject))

    def remove(core: "Core", subject: Any, name: str, caller: Caller) -> None:
        check(core, subject, caller)
        core.subjects.providers.remove(place(core, subject), name, models(core, subject))

    return find, each, make, remove


def model_removed(core: "Core", directory: Node, subject: "ProviderSubject", models: Models) -> None:
    """A model of a provider is gone; its last one may take the provider out of ``directory``."""
    place = None if subject.space is None else directory.id
    if core.subjects.providers.find(place, subject.provider, models) is None:
        core.kernel.names_changed(directory, subject.mtime)
        core.kernel.entry_changed(inode_of(directory), subject.provider)
