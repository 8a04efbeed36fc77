"""Writing imported lines by ordinary file operations: what works on every mount, but without times (spec 4.2, 1.4).

Entries get the time of the import. ``import_socket`` writes them with their own.
"""

import contextlib
import errno
import os
from collections.abc import Mapping, Sequence
from typing import Protocol

from backend.rows import Stream
from backend.transcripts.records import Converted
from mountctl.cli import Failure

BATCH_BYTES = (1 << 20) - 8192  # one request, wherever the buffer begins in its page


class Writer(Protocol):
    """Puts lines into sessions of one agent. Calls may return before the work is done: ``settle`` waits for it."""

    def append(self, session: str, lines: Sequence[Converted], n: int | None) -> None:
        """Appends to a session that has ``n`` entries; None: that is to be made."""
        ...

    def map(self, uuid: str, session: str) -> None:
        """Lets by-uuid/ lead to a session; one that could not be written is not mapped."""
        ...

    def branch(self, parent: str, child: str, at: int) -> None:
        """Makes a session that holds the first ``at`` entries of another (``Failure``: it cannot)."""
        ...

    def settle(self) -> Mapping[str, str]:
        """Sessions that could not be written whole, and why, once everything is done."""
        ...


class FileWriter:
    """One ``write`` for almost 1 MiB of lines of the same file, in the order of the lines."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def append(self, session: str, lines: Sequence[Converted], n: int | None) -> None:
        path = f"{self._directory}/{session}"
        if n is None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)
        stream, batch, size = lines[0].stream, list[bytes](), 0
        for line in lines:
            if batch and (line.stream != stream or size + len(line.raw) + 1 > BATCH_BYTES):
                _write(path, stream, batch)
                batch, size = [], 0
            stream = line.stream
            batch.append(line.raw)
            size += len(line.raw) + 1
        _write(path, stream, batch)

    def map(self, uuid: str, session: str) -> None:
        with open(f"{self._directory}/index/by-uuid/{uuid}", "w", encoding="utf-8") as file:
            file.write(f"{session}\n")

    def branch(self, parent: str, child: str, at: int) -> None:
        branch(f"{self._directory}/{parent}", child, at)

    def settle(self) -> Mapping[str, str]:
        return {}


def branch(parent: str, child: str, at: int) -> None:
    """Makes a child of the session of a directory by its ``user.ctx.branch`` (``Failure``)."""
    try:
        os.setxattr(parent, "user.ctx.branch", f"{child} {at}".encode())
    except FileExistsError:
        return
    except OSError as error:
        if error.errno == errno.ERANGE:
            raise Failure(f"session {os.path.basename(parent)} has fewer than {at} entries") from None
        raise


def _write(path: str, stream: Stream, batch: Sequence[bytes]) -> None:
    """A short write stored whole lines, so the rest is written again from there."""
    descriptor = os.open(f"{path}/{stream}.jsonl", os.O_WRONLY | os.O_APPEND)
    try:
        data = b"".join(raw + b"\n" for raw in batch)
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)
