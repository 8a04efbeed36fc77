"""Making and removing session directories, each in one step: built under a hidden name, then renamed.

What a crash leaves under hidden names is removed when the directory is looked at next.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from backend.jsonl.disk import create, directories, make_directory, open_regular
from backend.jsonl.handles import LOGS, STORE
from backend.jsonl.log import SessionLog, write_order
from backend.jsonl.order import OrderHeader, OrderLine
from backend.jsonl.views import write_views
from backend.rows import Session

_LEFTOVER = re.compile(r"\.(new|gone)-[0-9]+")
_BATCH = 4096


def building_name(directory: str, id: int) -> str:
    """Where the session that will be ``directory`` is built."""
    return f"{os.path.dirname(directory)}/.new-{id}"


def remove_leftovers(directory: str) -> None:
    """Removes what a crash left half made or half removed."""
    for name in directories(directory):
        if _LEFTOVER.fullmatch(name):
            shutil.rmtree(f"{directory}/{name}", ignore_errors=True)


def hide_session(directory: str, id: int) -> str:
    """Takes a session out of its directory in one step; the hidden name, to be removed."""
    hidden = f"{os.path.dirname(directory)}/.gone-{id}"
    os.rename(directory, hidden)
    return hidden


def make_session(directory: str, row: Session, header: OrderHeader) -> None:
    """The files of an empty session; those of a branch are then filled."""
    make_directory(directory)
    if os.geteuid() == 0 and row.uid:
        with suppress(OSError):
            os.chown(directory, row.uid, -1)
    for name in (STORE, "context"):
        make_directory(f"{directory}/{name}")
    for stream in LOGS:
        create(f"{directory}/{stream}.jsonl", b"", row.created_mtime)
    write_views(directory, row)
    write_order(directory, header, ())


def fill_branch(directory: str, header: OrderHeader, parent: SessionLog, at: int, mtime: int) -> None:
    """Copies the first ``at`` entries of a sound log: a prefix of each log file, and of the order."""
    ends = dict.fromkeys(LOGS, 0)

    def lines() -> Iterator[OrderLine]:
        for start in range(0, at, _BATCH):
            for line in parent.order(start, min(at, start + _BATCH)):
                ends[line.stream] = line.end
                yield msgspec.structs.replace(line, seq=header.seq, more=0)

    write_order(directory, header, lines())
    for stream, end in ends.items():
        path = f"{directory}/{stream}.jsonl"
        _copy(f"{parent.directory}/{stream}.jsonl", path, end)
        os.utime(path, ns=(mtime, mtime))


def _copy(source: str, target: str, size: int) -> None:
    """The first bytes of a file; shared on disk where the file system can."""
    reading, writing = open_regular(source, os.O_RDONLY), open_regular(target, os.O_WRONLY)
    try:
        while size > 0 and (copied := os.copy_file_range(reading, writing, size)):
            size -= copied
    finally:
        os.close(reading)
        os.close(writing)
