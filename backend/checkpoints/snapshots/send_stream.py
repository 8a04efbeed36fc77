"""What a stream of ``btrfs send`` says has changed (notes 2.10). Pure.

New things first get a name of the form ``o257-7-0``, and so do names that are in the way for a while; only where a
name ends counts. Changes of owner, mode, attributes and times alone are not reported. One entry a path, in the order
of the stream; a rename goes before an addition, that before a deletion, that before a modification.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from backend.checkpoints.errors import InternalError
from backend.checkpoints.wire import ChangeType, DiffEntry

_MAGIC = b"btrfs-stream\0"
_VERSION_BYTES = 4
_COMMAND = struct.Struct("<IHI")
_ATTRIBUTE = struct.Struct("<HH")

_MAKING = {3: None, 4: "directory", 5: None, 6: None, 7: None, 8: "symlink"}
_RENAME, _LINK, _UNLINK, _RMDIR, _END = 9, 10, 11, 12, 21
_CHANGING = frozenset((15, 16, 17, 22))  # write, clone, truncate, update_extent
_PATH, _PATH_TO, _PATH_LINK = 15, 16, 17

_PRECEDENCE = {ChangeType.Renamed: 4, ChangeType.Added: 3, ChangeType.Deleted: 2, ChangeType.Modified: 1}


class Command(NamedTuple):
    """A command and the paths that it names, by attribute."""

    kind: int
    paths: dict[int, bytes]


def parse(stream: bytes) -> Iterator[Command]:
    """The commands of a stream (``InternalError``: it is none)."""
    if not stream.startswith(_MAGIC):
        raise InternalError("btrfs sent no stream")
    at = len(_MAGIC) + _VERSION_BYTES
    try:
        while at < len(stream):
            length, kind, _ = _COMMAND.unpack_from(stream, at)
            at += _COMMAND.size
            if at + length > len(stream):
                raise InternalError("the stream of btrfs ends in the middle")
            yield Command(kind, dict(_attributes(stream[at : at + length])))
            at += length
    except struct.error:
        raise InternalError("the stream of btrfs ends in the middle") from None


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        kind, length = _ATTRIBUTE.unpack_from(data, at)
        at += _ATTRIBUTE.size
        if kind in (_PATH, _PATH_TO, _PATH_LINK):
            yield kind, data[at : at + length]
        at += length


def changes(stream: bytes) -> list[DiffEntry]:
    """The differences that a stream describes (``InternalError``)."""
    fold = _Fold()
    for command in parse(stream):
        fold.apply(command)
    return fold.entries()


class _Name:
    """A name as the stream has left it: what is known of it, and of the names below it.

    Each fact has the time of the command that said it. ``moved`` and ``linked`` also have a path of before the stream:
    where the name was, and what it is another name of.
    """

    def __init__(self, above: "_Name | None" = None, name: bytes = b"") -> None:
        self.above = above
        self.name = name
        self.below: dict[bytes, _Name] = {}
        self.made: tuple[int, str | None] | None = None
        self.moved: tuple[int, bytes] | None = None
        self.linked: tuple[int, bytes] | None = None
        self.changed: int | None = None

    def at(self, path: bytes) -> "_Name":
        """The name that a path leads to, known from now on."""
        found = self
        for part in path.split(b"/"):
            found = found.below.get(part) or found.below.setdefault(part, _Name(found, part))
        return found

    def path(self) -> bytes:
        return b"/".join([above.name for above in self._upwards()][::-1])

    def original(self) -> bytes:
        """What it was called before the stream."""
        parts: list[bytes] = []
        for above in self._upwards():
            if above.moved is not None:
                parts.append(above.moved[1])
                break
            parts.append(above.name)
        return b"/".join(parts[::-1])

    def _upwards(self) -> Iterator["_Name"]:
        """It and the names above, without the root."""
        found: _Name | None = self
        while found is not None and found.above is not None:
            yield found
            found = found.above

    def detach(self) -> None:
        if self.above is not None:
            self.above.below.pop(self.name, None)

    def attach(self, above: "_Name", name: bytes) -> None:
        self.above, self.name = above, name
        above.below[name] = self

    def all(self) -> Iterator["_Name"]:
        waiting = [self]
        while waiting:
            found = waiting.pop()
            waiting += found.below.values()
            yield found


class _Fold:
    """Follows names through a stream."""

    def __init__(self) -> None:
        self._now = 0
        self._root = _Name()
        self._deleted: dict[bytes, tuple[int, str | None]] = {}

    def apply(self, command: Command) -> None:
        self._now += 1
        name = self._root.at(command.paths.get(_PATH, b""))
        if command.kind in _MAKING:
            name.made = self._now, _MAKING[command.kind]
        elif command.kind == _RENAME:
            self._rename(name, command.paths[_PATH_TO])
        elif command.kind == _LINK:
            name.linked = self._now, self._root.at(command.paths[_PATH_LINK]).original()
        elif command.kind in (_UNLINK, _RMDIR):
            self._delete(name, "directory" if command.kind == _RMDIR else None)
        elif command.kind in _CHANGING and name.changed is None:
            name.changed = self._now

    def _rename(self, name: _Name, path: bytes) -> None:
        if name.made is None and name.linked is None:
            name.moved = self._now, name.original()
        name.detach()
        above, _, last = path.rpartition(b"/")
        name.attach(self._root.at(above) if above else self._root, last)

    def _delete(self, name: _Name, detail: str | None) -> None:
        if name.made is None and name.linked is None:
            self._deleted[name.original()] = self._now, detail
        name.detach()

    def entries(self) -> list[DiffEntry]:
        found: dict[bytes, tuple[int, ChangeType, str | None]] = {}
        for when, path, change, detail in sorted(self._all(), key=lambda each: each[0]):
            first, known, _ = found.get(path, (when, None, None))
            if known is None or _PRECEDENCE[change] > _PRECEDENCE[known]:
                found[path] = first, change, detail
        return [DiffEntry(_text(path), change, detail) for path, (_, change, detail) in found.items()]

    def _all(self) -> Iterator[tuple[int, bytes, ChangeType, str | None]]:
        names = sorted(self._root.all(), key=lambda name: name.linked or (0, b""))
        for name in names:
            path = name.path()
            if name.made is not None:
                yield name.made[0], path, ChangeType.Added, name.made[1]
            if name.linked is not None:
                yield self._link(path, *name.linked)
            if name.moved is not None and name.moved[1] != path:
                yield name.moved[0], path, ChangeType.Renamed, _arrow(name.moved[1], path)
            if name.changed is not None:
                yield name.changed, path, ChangeType.Modified, None
        for path, (when, detail) in self._deleted.items():
            yield when, path, ChangeType.Deleted, detail

    def _link(self, path: bytes, when: int, old: bytes) -> tuple[int, bytes, ChangeType, str | None]:
        """A new name of a file whose old name is gone is a rename; of several, the first."""
        if self._deleted.pop(old, None) is None:
            return when, path, ChangeType.Added, "hardlink"
        return when, path, ChangeType.Renamed, _arrow(old, path)


def _arrow(old: bytes, new: bytes) -> str:
    return f"{_text(old)} → {_text(new)}"


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
