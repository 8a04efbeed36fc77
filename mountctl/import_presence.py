"""What a session has of a source already, so that an import that is repeated adds only what is new (spec 4.2)."""

import contextlib
import hashlib
from collections import Counter

from backend.rows import Stream
from backend.transcripts.records import Position


class Present:
    """The lines of a session, compared in step with those of the source.

    An import that is repeated finds its lines in the same order. Once they part (lines of others, or of nobody), the
    rest of the file is counted, and each of its lines stands for one equal line of the source: about 150 bytes each.
    """

    def __init__(self, directory: str, start: Position) -> None:
        self._files: dict[Stream, _Lines] = {
            "messages": _Lines(f"{directory}/messages.jsonl", start.messages),
            "events": _Lines(f"{directory}/events.jsonl", start.events),
        }

    def has(self, stream: Stream, raw: bytes) -> bool:
        """Whether the session has this line of the source; each of its lines counts once."""
        return self._files[stream].has(raw)

    def is_foreign(self) -> bool:
        """Whether it has messages, none of which the source had."""
        return self._files["messages"].is_foreign()

    def reaches(self, at: Position) -> bool:
        """Whether the session's first entries are those of the source up to ``at``, nothing of others between them."""
        return self._files["messages"].reaches(at.messages) and self._files["events"].reaches(at.events)

    def close(self) -> None:
        for file in self._files.values():
            file.close()


class _Lines:
    """One log file, from line ``start`` on, to where it ended when the import began."""

    def __init__(self, path: str, start: int) -> None:
        with contextlib.ExitStack() as stack:
            self._file = stack.enter_context(open(path, "rb"))
            self._end = self._file.seek(0, 2)
            self._file.seek(0)
            for _ in range(start):
                self._file.readline()
            stack.pop_all()
        self._next = self._read()
        self._in_step = start
        self._matched = False
        self._rest: Counter[bytes] | None = None

    def has(self, raw: bytes) -> bool:
        if self._rest is None:
            if self._next == raw:
                self._matched = True
                self._in_step += 1
                self._next = self._read()
                return True
            if self._next is None:
                return False
            self._rest = self._count_rest()
        key = _digest(raw)
        if self._rest[key] == 0:
            return False
        self._rest[key] -= 1
        self._matched = True
        return True

    def is_foreign(self) -> bool:
        return not self._matched and self._next is not None

    def reaches(self, count: int) -> bool:
        return count <= self._in_step or (self._rest is None and self._next is None)

    def close(self) -> None:
        self._file.close()

    def _read(self) -> bytes | None:
        """The next line that was there before this import began."""
        if self._file.tell() >= self._end:
            return None
        return self._file.readline().removesuffix(b"\n")

    def _count_rest(self) -> Counter[bytes]:
        rest, line = Counter[bytes](), self._next
        while line is not None:
            rest[_digest(line)] += 1
            line = self._read()
        return rest


def _digest(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=16).digest()
