"""What is found to be wrong, and where."""

from typing import Literal

import msgspec

Check = Literal["line", "history", "sequence", "cut-before", "json", "facts", "index", "search", "database", "disk"]
"""What was checked: lines of files, the whole of a history, the log's invariants (spec 2.7), what a session's files say
of its log, index/, the search index, the store's own files, ordinary directories."""


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong. ``path``: the file, relative to the home or shared space.

    ``line`` from 1 and ``offset`` in bytes where it is about a line, ``n`` where it is about an entry.
    """

    check: Check
    path: str
    reason: str
    line: int | None = None
    offset: int | None = None
    n: int | None = None
