"""``<store>/.ctxfs/catalogue.jsonl``: the ids of everything in the tree, and what no file of the tree says.

Append-only, one record a line, the last one of an id counts; rewritten at open when most of it is past. Ids are
counted up over all kinds and never used again. The tree itself decides what exists: a record whose directory is gone
is dropped, a directory without one gets the next id (in order of names), so a tree copied in from elsewhere, or a
lost catalogue, costs nothing but the numbers. The store's thread only.
"""

import os
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from backend.errors import StoreCorrupt
from backend.jsonl.disk import create, open_regular, read_range, regular, write_range
from backend.jsonl.durability import Durability
from backend.rows import IndexKind, OwnerKind

_RESERVED = 4096
_SLACK = 1000


class Record(msgspec.Struct, frozen=True, tag_field="is", omit_defaults=True):
    """Something with an id."""

    id: int


class SpaceRecord(Record, frozen=True, tag="space"):
    """A home or a shared place; ``mtime`` 0 is that of its directory."""

    name: str
    uid: int
    gid: int
    mode: int
    mtime: int = 0


class OwnerRecord(Record, frozen=True, tag="owner"):
    """An agent or a model in a space."""

    space: str
    kind: OwnerKind
    name: str
    uid: int
    gid: int


class SessionRecord(Record, frozen=True, tag="session"):
    """A session: where it is, and who it is. ``seq`` is that of its discovery if it is foreign."""

    session_id: str
    name: str
    uid: int
    scope: str
    owner: int | None = None
    archive: int | None = None
    seq: int = 0


class MappingRecord(Record, frozen=True, tag="mapping"):
    """A file of by-cwd/, by-hash/ or by-uuid/."""

    owner: int
    kind: IndexKind
    key: str


class ArchiveRecord(Record, frozen=True, tag="archive"):
    """A directory below archived_sessions/."""

    space: str
    parent: int | None
    name: str
    uid: int


class DefinitionRecord(Record, frozen=True, tag="definition"):
    """What an admin defined."""

    kind: OwnerKind
    name: str


class RunRecord(Record, frozen=True, tag="run"):
    """The run that a session has now, as long as who began it has not ended it."""

    session: int
    run: str


class Gone(Record, frozen=True, tag="gone"):
    """The id is not used any more."""


class Reserved(Record, frozen=True, tag="reserved"):
    """``id``: the highest in use when the catalogue was rewritten; sequences up to ``seq`` may have been used."""

    seq: int


Known = SpaceRecord | OwnerRecord | SessionRecord | MappingRecord | ArchiveRecord | DefinitionRecord | RunRecord
_Any = Known | Gone | Reserved
T = TypeVar("T", bound=Record)


class Catalogue:
    """The records that count, and the counters. Methods that write raise ``OSError`` and have then changed nothing."""

    def __init__(self, path: str, durability: Durability) -> None:
        """Reads the catalogue, or makes an empty one (``OSError``, ``StoreCorrupt``)."""
        self.path = path
        self._durability = durability
        if regular(path) is None:
            create(path)
        self._descriptor = open_regular(path, os.O_RDWR)
        self._records: dict[int, Known] = {}
        self._last_id = 0
        self._seq = self._reserved = 0
        self._size = 0
        self._read()

    def all(self, kind: type[T]) -> Iterator[T]:
        """The records of a kind, by id."""
        return (record for _, record in sorted(self._records.items()) if isinstance(record, kind))

    def get(self, kind: type[T], id: int) -> T | None:
        record = self._records.get(id)
        return record if isinstance(record, kind) else None

    def next_id(self) -> int:
        """An id for a record to be put: it is used up once that is done."""
        self._last_id += 1
        return self._last_id

    def put(self, *records: Known) -> None:
        """Records what is there now."""
        if records:
            self._append(*records)
        for record in records:
            self._take(record)

    def drop(self, *ids: int) -> None:
        """Forgets what is gone."""
        if ids:
            self._append(*map(Gone, ids))
        for id in ids:
            self._take(Gone(id))

    def next_seq(self) -> int:
        """The next commit sequence; none is given twice, also after a crash."""
        if self._seq >= self._reserved:
            self._append(Reserved(self._last_id, self._seq + _RESERVED))
            self._reserved = self._seq + _RESERVED
        self._seq += 1
        return self._seq

    def saw_seq(self, seq: int) -> None:
        """A session copied in has this sequence: later ones are higher."""
        self._seq = max(self._seq, seq)

    def close(self) -> None:
        os.close(self._descriptor)

    def _read(self) -> None:
        content = read_range(self._descriptor, 0, os.fstat(self._descriptor).st_size)
        *lines, torn = content.split(b"\n")
        decode = msgspec.json.Decoder(_Any).decode
        for number, line in enumerate(lines, 1):
            try:
                self._take(decode(line))
            except (msgspec.DecodeError, ValueError) as error:
                raise StoreCorrupt(f"{self.path} line {number}: {error}; remove it to have it made again") from None
        self._seq = self._reserved
        self._size = len(content) - len(torn)
        if torn or len(lines) > 2 * len(self._records) + _SLACK:
            self._rewrite()

    def _take(self, record: _Any) -> None:
        self._last_id = max(self._last_id, record.id)
        if isinstance(record, Gone):
            self._records.pop(record.id, None)
        elif isinstance(record, Reserved):
            self._reserved = max(self._reserved, record.seq)
        else:
            self._records[record.id] = record

    def _append(self, *records: _Any) -> None:
        content = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
        try:
            write_range(self._descriptor, content, self._size)
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(content)
        self._durability.add((self.path,))

    def _rewrite(self) -> None:
        records: list[_Any] = [
            Reserved(self._last_id, self._reserved),
            *(record for _, record in sorted(self._records.items())),
        ]
        content = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
        create(f"{self.path}.new", content)
        os.rename(f"{self.path}.new", self.path)
        os.close(self._descriptor)
        self._descriptor = open_regular(self.path, os.O_RDWR)
        self._size = len(content)
