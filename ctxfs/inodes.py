"""Inode numbers: a row of the table of files and the id of what it shows, packed into 64 bits.

A store's row ids are stable and never reused, so most inode numbers need no memory at all and survive restarts.
What no single id names (index keys, provider directories) is *interned*: it gets a number when the kernel is told of
it and loses it when the kernel forgets it. Ordinary directories have numbers of their own with
``DISK_TAG`` set (``ctxfs.files.passthrough``).
"""

import enum
from collections.abc import Hashable
from typing import Generic, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)

# What a file without an id of its own is known by, until it is interned.
Key = tuple[Hashable, ...]

ROOT_INODE = 1
_ID_BITS = 48
_ID_MASK = (1 << _ID_BITS) - 1


class Kind(enum.IntEnum):
    """The kinds of file: the rows of the table in ``ctxfs.table``. Numbers are part of inode numbers: append only."""

    # That of an Enum is a Python function, and every request looks kinds up.
    __hash__ = int.__hash__

    ROOT = 0
    STATUS = 1
    AGENTS = 2
    MODELS = 3
    HOMES = 4
    SHARED = 5
    AGENT_DEFINITION = 6
    MODEL_DEFINITION = 7
    MODEL_PROVIDER = 8
    DEFINITION_OWNER = 9
    DEFINITION_EXEC = 10
    DEFINITION_ROOT = 11
    DEFINITION_CWD = 12
    DEFINITION_MOUNT = 13
    DEFINITION_MODEL = 14
    DEFINITION_META = 15
    DEFINITION_STATUS = 16
    HOME = 17
    SHARED_SPACE = 18
    SPACE_AGENTS = 19
    SPACE_MODELS = 20
    SPACE_PROVIDER = 21
    ARCHIVE = 22
    ARCHIVE_DIRECTORY = 23
    AGENT = 24
    MODEL = 25
    SESSIONS = 26
    INDEX = 27
    LIST = 28
    CURRENT = 29
    BY_CWD = 30
    BY_HASH = 31
    BY_UUID = 32
    CWD_KEY = 33
    HASH_KEY = 34
    UUID_KEY = 35
    SESSION = 36
    MESSAGES = 37
    EVENTS = 38
    LATEST = 39
    STATE = 40
    CWD = 41
    CREATED_AT = 42
    UPDATED_AT = 43
    META = 44
    AGENTS_MD = 45
    SKILLS_MD = 46
    CONTEXT = 47
    TEMPORARY = 48
    SOCKET = 49
    CONTEXT_MESSAGES = 50
    CONTEXT_LOG = 51
    CONTEXT_TRANSCRIPT = 52
    CONTEXT_REQUEST = 53


# Kinds whose ids are numbers of ``Interned``.
INTERNED = frozenset((Kind.MODEL_PROVIDER, Kind.SPACE_PROVIDER, Kind.CWD_KEY, Kind.HASH_KEY, Kind.UUID_KEY))


# Asked for by nearly every request, and a global name is five times as fast as a member of an Enum.
TEMPORARY, CONTEXT, HOMES, SHARED_SPACE = Kind.TEMPORARY, Kind.CONTEXT, Kind.HOMES, Kind.SHARED_SPACE


class Node(msgspec.Struct, frozen=True, gc=False):
    """A file of the tree: its kind, and the id of its subject."""

    kind: Kind
    id: int


def inode_of(node: Node) -> int:
    """The inode number of a node; that of the root (kind 0, id 1) is 1, as FUSE wants it."""
    return node.kind << _ID_BITS | node.id


def node_of(inode: int) -> Node:
    """The inverse of ``inode_of``."""
    return Node(_KINDS[inode >> _ID_BITS], inode & _ID_MASK)


_KINDS = tuple(Kind)


def blocks(size: int) -> int:
    """``st_blocks`` of a file of so many bytes."""
    return (size + 511) // 512


class Interned(Generic[K]):
    """Numbers for keys that have none, kept while the kernel remembers them (its lookup count).

    A number that the kernel is not told of (a refused create, a name that is not there) is gone with the next new one.
    """

    def __init__(self) -> None:
        self._ids: dict[K, int] = {}
        self._keys: dict[int, K] = {}
        self._lookups: dict[int, int] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._ids)

    def id(self, key: K) -> int:
        """The number of ``key``, a new one if it has none; ``remember`` it before another is asked for."""
        if key not in self._ids:
            if self._last in self._keys and self._last not in self._lookups:
                self.forget(self._last, 0)
            self._last += 1
            self._ids[key] = self._last
            self._keys[self._last] = key
        return self._ids[key]

    def known(self, key: K) -> int | None:
        """The number of ``key`` if it has one."""
        return self._ids.get(key)

    def key(self, number: int) -> K | None:
        return self._keys.get(number)

    def remember(self, number: int) -> None:
        """Counts one lookup that the kernel was told of."""
        self._lookups[number] = self._lookups.get(number, 0) + 1

    def forget(self, number: int, lookups: int) -> bool:
        """Takes ``lookups`` back; True when the kernel knows the number no more and it is gone."""
        left = self._lookups.get(number, 0) - lookups
        if left > 0:
            self._lookups[number] = left
            return False
        self._lookups.pop(number, None)
        key = self._keys.pop(number, None)
        if key is not None:
            del self._ids[key]
        return key is not None
