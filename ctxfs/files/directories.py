"""What the directories of the tree share: how a name in one is found, listed, made and removed.

A pattern row of the table has functions of these shapes; each takes the mount's ``Core`` and the subject of the
directory. Ids are those of the row that is found (``ctxfs.inodes``), or the key of what has none: it gets a number once
the kernel is told of it.
"""

from typing import Any

import msgspec

from ctxfs.inodes import Key

# Rows that a listing asks the store for at once.
PAGE = 1000


class Caller(msgspec.Struct, frozen=True):
    """Who asks: the uid and gid of the request."""

    uid: int
    gid: int


class Found(msgspec.Struct, frozen=True):
    """One entry of a listing. ``offset`` is positive, unique in its directory and stable (it resumes a listing)."""

    offset: int
    name: str
    id: int | Key
    subject: Any = None
