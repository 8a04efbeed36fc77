"""The small files beside a log, as CortexFS tools expect them: views of the session's row that can be made again.

They are staged before a request is written and published after it, so that a full disk refuses the request whole.
A view that a crash left behind the log is found by its size and mtime when the session is opened, and made again.
"""

from collections.abc import Callable

import msgspec

from backend.facts import later
from backend.jsonl.disk import Replacement, create, read_small, regular, replace, stamp
from backend.jsonl.handles import STORE
from backend.store import Session

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


class StagedViews:
    """The next contents of those of ``files`` that are views; ``latest`` is that of latest.md."""

    def __init__(self, directory: str, row: Session, files: frozenset[str], latest: bytes) -> None:
        self._staged: list[Replacement] = []
        try:
            for name in files & VIEWS.keys():
                content = latest if name == _LATEST else _value(row, name)
                mtime = getattr(row, VIEWS[name])
                self._staged.append(Replacement(f"{directory}/{name}", content, mtime, f"{directory}/{STORE}"))
        except OSError:
            self.discard()
            raise

    def publish(self) -> None:
        for staged in self._staged:
            staged.publish()

    def discard(self) -> None:
        for staged in self._staged:
            staged.discard()


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
        content = latest() if name == _LATEST else _value(row, name)
        had = found.st_mtime_ns if found else 0
        if found and read_small(path, len(content)) == content:
            mtime = max(mtime, had)
            stamp(path, mtime)
        else:
            mtime = mtime if had < mtime else later(had, tick())
            replace(path, content, mtime)
        mtimes[field] = mtime
    return msgspec.structs.replace(row, **mtimes) if mtimes else row


def _value(row: Session, name: str) -> bytes:
    return f"{_CONTENTS[name](row)}\n".encode()


def _size(row: Session, name: str) -> int:
    return row.latest_size if name == _LATEST else len(_value(row, name))
