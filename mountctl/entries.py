"""The entries of a session's log, read through the mount (spec 1.7: context/log.jsonl), for commands that show them."""

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from backend.entries import Entry
from backend.strict_json import compact, lenient_object
from backend.transcripts.blobs import Load, restored
from mountctl import places

_convert: Callable[[Any], Entry] = partial(msgspec.convert, type=Entry)

_BUFFER = 1 << 18  # positions that are near to each other are read at once


class LogFile(contextlib.AbstractContextManager["LogFile"]):
    """A session's entries as they are now: iterating twice gives the same, whatever is appended meanwhile.

    With ``load`` the blobs that entries name are put back (``Failure`` where one is missing). One line is in memory at
    a time. ``Failure`` where there is no such session.
    """

    def __init__(self, directory: str, load: Load | None = None) -> None:
        self.directory = directory
        self._load = load
        try:
            self._file = open(f"{directory}/context/log.jsonl", "rb", _BUFFER)  # noqa: SIM115  (closed by __exit__)
        except FileNotFoundError:
            raise places.no_session(directory) from None
        self._size = os.fstat(self._file.fileno()).st_size

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Entry]:
        for _, line in self.lines():
            yield self._entry(line)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Each line, and where it begins: what ``at`` takes."""
        position = 0
        while position < self._size:
            self._file.seek(position)
            line = self._file.readline()
            yield position, line
            position += len(line)

    def at(self, position: int) -> Entry:
        """The entry whose line begins there."""
        self._file.seek(position)
        return self._entry(self._file.readline())

    def _entry(self, line: bytes) -> Entry:
        value = lenient_object(line)
        if self._load is not None and b'"blob"' in line:
            key = "message" if value["kind"] == "message" else "data"
            if isinstance(value[key], dict):
                value[key] = lenient_object(restored(compact(value[key]), self._load))
        return _convert(value)
