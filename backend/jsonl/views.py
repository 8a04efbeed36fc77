"""The small files beside a log, as CortexFS tools expect them: views of the session's row that can be made again.

They are written after the request that changes them. One that a crash or a full disk left behind the log is found by
its size and mtime when the session is opened next, and made again.
"""

from collections.abc import Callable
from contextlib import suppress

import msgspec

from backend.facts import later
from backend.jsonl.disk import create, overwrite, read_small, regular, stamp
from backend.rows import Session

_CONTENTS: dict[str, Callable[[Session], str]] = {
    "state": lambda row: row.state,
    "cwd": lambda row: row.cwd,
    "created_at": lambda row: str(row.created_at // 1000),
    "updated_at": lambda row: str(row.updated_at // 1000),
    "meta.json": lambda row: row.meta,
}
_LATEST = "latest.md"
VIEWS = {
    "state": "state_mtime",
    "cwd": "cwd_mtime",
    "created_at": "created_mtime",
    "updated_at": "updated_mtime",
    "meta.json": "meta_mtime",
    _LATEST: "latest_mtime",
}


def write_views(directory: str, row: Session) -> None:
    """The small files of a session that has no message yet."""
    for name, field in VIEWS.items():
        content = b"" if name == _LATEST else _value(row, name)
        create(f"{directory}/{name}", content, getattr(row, field))


def renew_views(directory: str, row: Session, files: frozenset[str], latest: bytes) -> None:
    """Writes those of ``files`` that are views; ``latest`` is the content of latest.md."""
    for name in files & VIEWS.keys():
        content = latest if name == _LATEST else _value(row, name)
        overwrite(f"{directory}/{name}", content, getattr(row, VIEWS[name]))


def doubted_views(row: Session) -> Session:
    """``row`` as if nobody knew when its views were written: ``settled_views`` then looks into each of them."""
    return msgspec.structs.replace(row, **dict.fromkeys(VIEWS.values(), 0))


def settled_views(directory: str, row: Session, latest: Callable[[], bytes], tick: Callable[[], int]) -> Session:
    """Makes the views again that do not agree with ``row``; the row with the mtimes they have then.

    ``latest`` gives the content of latest.md.
    """
    mtimes: dict[str, int] = {}
    for name, field in VIEWS.items():
        path, mtime = f"{directory}/{name}", getattr(row, field)
        found = regular(path)
        if found and found.st_mtime_ns == mtime and found.st_size == _size(row, name):
            continue
        had = found.st_mtime_ns if found else 0
        content = latest() if name == _LATEST else _value(row, name)
        stands = found is not None and read_small(path, len(content)) == content
        mtimes[field] = mtime = _next_mtime(mtime, had, stands, tick)
        # The row is right without it: a disk that takes no view does not keep the session from being read.
        with suppress(OSError):
            if stands:
                stamp(path, mtime)
            else:
                overwrite(path, content, mtime)
    return msgspec.structs.replace(row, **mtimes) if mtimes else row


def _next_mtime(known: int, had: int, stands: bool, tick: Callable[[], int]) -> int:
    """The mtime of a view that should have ``known`` and has ``had``."""
    if stands:
        return max(known, had, 1)
    return known if had < known else later(had, tick())


def _value(row: Session, name: str) -> bytes:
    return f"{_CONTENTS[name](row)}\n".encode()


def _size(row: Session, name: str) -> int:
    return row.latest_size if name == _LATEST else len(_value(row, name))
