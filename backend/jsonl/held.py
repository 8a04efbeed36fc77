"""What the store holds of an owner in memory, and how an owner's files are read."""

import os
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

from backend.jsonl.catalogue import OwnerRecord
from backend.jsonl.disk import regular
from backend.jsonl.foreign import read_value
from backend.memory.parts import OwnerIndex, Rows
from backend.rows import IndexKind, Mapping, Owner


class Keys(NamedTuple):
    """Names in index/by-cwd that changed."""

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


class Held:
    """An owner: its row, its live sessions by name and id, and, once something needs them, the parts of its index."""

    def __init__(self, row: Owner, path: str, names: dict[str, int]) -> None:
        """``path`` is its ``session/``."""
        self.row = row
        self.path = path
        self.names = names
        self.ids = sorted(names.values())
        self.order: OwnerIndex | None = None
        self.mappings: dict[IndexKind, Rows[Mapping]] = {}
        self.stale_list = False

    def add(self, name: str, id: int) -> None:
        """A new live session."""
        self.names[name] = id
        insort(self.ids, id)

    def remove(self, name: str) -> None:
        """A session that is not live any more."""
        del self.ids[bisect_left(self.ids, self.names.pop(name))]

    def page(self, after: int, limit: int) -> Sequence[int]:
        """Ids of live sessions above ``after``."""
        start = bisect_right(self.ids, after)
        return self.ids[start : start + limit]

    def index_file(self, name: str) -> str:
        """The path of a file of the index."""
        return f"{self.path}/index/{name}"


def owner_row(record: OwnerRecord, path: str, names: dict[str, int]) -> Owner:
    """The row of an owner as its files have it (``OSError``)."""
    mtime = max(1, os.lstat(path).st_mtime_ns)
    current = read_value(f"{path}/index/current")
    return Owner(
        id=record.id,
        space=record.space,
        kind=record.kind,
        name=record.name,
        uid=record.uid,
        gid=record.gid,
        mtime=mtime,
        current=current if current in names else None,
        current_mtime=file_mtime(f"{path}/index/current", mtime),
        list_size=sum(len(name) + 1 for name in names),
        list_mtime=file_mtime(f"{path}/index/list", mtime),
    )


def file_mtime(path: str, otherwise: int) -> int:
    """The mtime of a file, in ns, never 0."""
    stat = regular(path)
    return max(1, stat.st_mtime_ns) if stat else otherwise
