"""Open files of sessions: few, the least recently used closed first. The store's thread only."""

import errno
import os
from collections import OrderedDict

from backend.jsonl.disk import FILE_MODE, is_directory, open_regular, own
from backend.rows import Stream

STORE = ".store"
ORDER = f"{STORE}/order.jsonl"
JOURNAL = f"{STORE}/journal"
LOGS: tuple[Stream, Stream] = ("messages", "events")

_OPEN_SESSIONS = 32
_NONE = -1
_READ_ONLY = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))


class Handles:
    """The files of one session directory; a descriptor is -1 where there is no regular file that can be read."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.messages = _open(f"{directory}/messages.jsonl")
        self.events = _open(f"{directory}/events.jsonl")
        self.has_store = is_directory(f"{directory}/{STORE}")
        self.order = _open(f"{directory}/{ORDER}") if self.has_store else _NONE
        self.journal = _open(f"{directory}/{JOURNAL}") if self.has_store else _NONE

    def stream(self, stream: Stream) -> int:
        """The descriptor of a log file."""
        return self.messages if stream == "messages" else self.events

    def writable_journal(self) -> int:
        """The journal, made if it is missing."""
        if self.journal < 0:
            path = f"{self.directory}/{JOURNAL}"
            self.journal = open_regular(path, os.O_RDWR | os.O_CREAT)
            os.fchmod(self.journal, FILE_MODE)
            own(self.journal, os.path.dirname(path))
        return self.journal

    def close(self) -> None:
        for descriptor in (self.messages, self.events, self.order, self.journal):
            if descriptor >= 0:
                os.close(descriptor)


class HandleCache:
    """The sessions whose files are open, by directory."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, Handles] = OrderedDict()

    def of(self, directory: str) -> Handles:
        """The open files of a session; valid until the next call."""
        handles = self._open.get(directory)
        if handles is None:
            handles = self._open[directory] = Handles(directory)
            if len(self._open) > _OPEN_SESSIONS:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(directory)
        return handles

    def forget(self, directory: str) -> None:
        """Closes a session's files: it moves, goes, or has new ones."""
        if handles := self._open.pop(directory, None):
            handles.close()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


def _open(path: str) -> int:
    try:
        return open_regular(path, os.O_RDWR)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            return _NONE
    try:
        return open_regular(path, os.O_RDONLY)
    except OSError:
        return _NONE
