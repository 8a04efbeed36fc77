"""Copying a jsonl store while it is open (``backend.store.DiskStore``).

Two passes: the first copies while others write, the second, in one turn of the store's thread, what has changed since.
So writers wait for a look at every session's files, and for as much as was written during the first pass. Ordinary
directories, which are neither the store's nor consistent, come afterwards and keep nobody waiting.

The copy says of itself that its process died when the second pass ended: whoever opens it makes the views anew that an
open store leaves for later. Locks, and search indexes, which are views too, are left out.
"""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

from backend.jsonl.opened import mark_copy
from backend.jsonl.paths import HIDDEN
from backend.mirror import Mirror

NOT_COPIED = frozenset((*(f"{HIDDEN}/{name}" for name in ("lock", "opened", "search")), "lost+found"))
_ORDINARY = re.compile(
    r"(home|shared)/[^/]+/(data|agent/[^/]+/(root|data|cache|log))"
    r"|((home|shared)/.+/session|(home|shared)/[^/]+/archived_sessions|.ctxfs/session)/.+/context"
)


def copy_tree(
    source: Path, target: Path, in_turn: Callable[[Callable[[], None]], None], proceed: Callable[[int], None]
) -> None:
    """Copies the store in ``source`` into the empty directory ``target`` (``OSError``)."""
    ordinary: set[str] = set()

    def skips(path: str) -> bool:
        if _ORDINARY.fullmatch(path):
            ordinary.add(path)
        return path in NOT_COPIED or path in ordinary

    sessions = Mirror(source, target, skips, proceed)
    sessions.copy()
    in_turn(sessions.copy)
    for path in sorted(ordinary):
        _copy_ordinary(source / path, target / path, proceed)
    mark_copy(str(target))


def _copy_ordinary(source: Path, target: Path, proceed: Callable[[int], None]) -> None:
    # What belongs to a session may have gone with it, from either side.
    with contextlib.suppress(FileNotFoundError):
        target.mkdir()
        Mirror(source, target, lambda _: False, proceed).copy()
