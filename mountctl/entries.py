"""The entries of a session's log, read through the mount (spec 1.7: context/log.jsonl), for commands that show them."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from backend.entries import Entry
from backend.lines import entry_of
from backend.store import Row, Stream
from backend.strict_json import lenient_object
from mountctl import places

_STREAMS: tuple[Stream, ...] = ("messages", "events")


_convert: Callable[[Any], Entry] = partial(msgspec.convert, type=Entry)


class LogFile:
    """A session's entries as they are now: iterating twice gives the same, whatever is appended meanwhile.

    ``Failure`` where there is no such session.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = f"{directory}/context/log.jsonl"
        try:
            os.stat(f"{directory}/messages.jsonl")
            self._size: int | None = os.stat(self._path).st_size
        except FileNotFoundError as error:
            if error.filename != self._path:
                raise places.no_session(directory) from None
            self._size = None

    def __iter__(self) -> Iterator[Entry]:
        if self._size is None:
            return self._unordered()
        return self._ordered(self._size)

    def _ordered(self, size: int) -> Iterator[Entry]:
        with open(self._path, "rb") as file:
            while file.tell() < size:
                yield entry(file.readline())

    def _unordered(self) -> Iterator[Entry]:
        time, n = int(os.stat(f"{self._directory}/messages.jsonl").st_mtime * 1000), 0
        for stream in _STREAMS:
            with open(f"{self._directory}/{stream}.jsonl", "rb") as file:
                for line in file:
                    yield entry_of(Row(n, time, "message" if stream == "messages" else "mark", stream, line))
                    n += 1


def entry(line: bytes) -> Entry:
    """The entry that a line of context/log.jsonl says."""
    return _convert(lenient_object(line))
