"""Writing one foreign transcript into a session, by ordinary file operations (spec 4.2, import).

Two passes over the source, neither of which holds it in memory: the first finds what cannot be read, so that a session
can be left out whole; the second appends what the session does not have yet, in batches of whole lines. Only where the
session and the source part, a digest is held for each further line of the session (about 150 bytes).
"""

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, Protocol

from backend.store import Stream
from backend.transcripts.records import Converted, Identity, Record, Unreadable
from mountctl import blobs, places
from mountctl.cli import Failure
from mountctl.ctx_session_new import make_owner

BATCH_BYTES = (1 << 20) - 8192  # one request, wherever the buffer begins in its page
STREAMS: tuple[Stream, ...] = ("messages", "events")


class Format(Protocol):
    """A module of ``backend.transcripts``."""

    def identify(self, file: BinaryIO, stem: str) -> Identity: ...
    def convert(self, file: BinaryIO, scope: str) -> Iterator[Record]: ...


class Target(NamedTuple):
    """Whose session it becomes."""

    agent: str
    space: str | None

    @property
    def directory(self) -> str:
        return places.owner(self.agent, self.space)

    @property
    def scope(self) -> str:
        return "private" if self.space is None else "shared"


class Imported(NamedTuple):
    """What came of one source: lines added, lines already there, lines skipped as unreadable."""

    session: str
    added: int = 0
    present: int = 0
    skipped: int = 0


class Check(NamedTuple):
    """What the first pass found: how many lines it gives, and what cannot be read."""

    lines: int
    unreadable: list[Unreadable]


MAX_REPORTED = 1000


def check(path: str, form: Format, scope: str, progress: Callable[[int], None]) -> Check:
    """Reads a source through; keeps at most 1000 of its faults."""
    lines, faults = 0, list[Unreadable]()
    with open(path, "rb") as file:
        for record in _followed(form.convert(file, scope), file, progress):
            if isinstance(record, Converted):
                lines += 1
            elif len(faults) < MAX_REPORTED:
                faults.append(record)
    return Check(lines, faults)


def transfer(path: str, form: Format, target: Target, progress: Callable[[int], None]) -> Imported:
    """Appends what the source's session does not have; makes the session if it is new (``Failure``)."""
    with open(path, "rb") as file:
        identity = form.identify(file, _stem(path))
        file.seek(0)
        name = _find_or_make(identity, target)
        counts = _append_new(_followed(form.convert(file, target.scope), file, progress), target, name)
    if identity.uuid is not None:
        _map_uuid(target, identity.uuid, name)
    return Imported(name, counts["added"], counts["present"], counts["skipped"])


def _followed(records: Iterator[Record], file: BinaryIO, progress: Callable[[int], None]) -> Iterator[Record]:
    for record in records:
        progress(file.tell())
        yield record


def _append_new(records: Iterator[Record], target: Target, name: str) -> Counter[str]:
    directory = f"{target.directory}/session/{name}"
    counts = Counter[str]()
    with contextlib.ExitStack() as stack:
        present = {stream: stack.enter_context(_Present(f"{directory}/{stream}.jsonl")) for stream in STREAMS}
        writer = stack.enter_context(_Writer(directory, target))
        for record in records:
            if isinstance(record, Unreadable):
                counts["skipped"] += 1
            elif present[record.stream].has(record.raw):
                counts["present"] += 1
            else:
                _check_same(present["messages"], name)
                counts["added"] += 1
                writer.append(record)
        writer.flush()
    return counts


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _find_or_make(identity: Identity, target: Target) -> str:
    """The session that this source was imported into before, or a new one."""
    if identity.uuid is not None:
        with contextlib.suppress(FileNotFoundError), open(_uuid_file(target, identity.uuid), encoding="utf-8") as file:
            return file.read().strip()
    make_owner(target.agent, target.space)
    with contextlib.suppress(FileExistsError):
        os.mkdir(f"{target.directory}/session/{identity.name}")
    return identity.name


def _uuid_file(target: Target, uuid: str) -> str:
    return f"{target.directory}/session/index/by-uuid/{uuid}"


def _map_uuid(target: Target, uuid: str, name: str) -> None:
    path = _uuid_file(target, uuid)
    if not os.path.exists(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"{name}\n")


def _check_same(messages: "_Present", name: str) -> None:
    """A session that has messages but not this source's first one is somebody else's."""
    if messages.is_foreign():
        raise Failure(f"session {name} exists and is not an import of this file")


class _Present(contextlib.AbstractContextManager["_Present"]):
    """The lines that a log file has already, compared in step with those of the source.

    An import that is repeated finds its lines in the same order. Once they part (lines of others, or of nobody), the
    rest of the file is counted, and each of its lines stands for one equal line of the source.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115  (closed by __exit__)
        self._end = os.fstat(self._file.fileno()).st_size
        self._next = self._read()
        self._matched = False
        self._rest: Counter[bytes] | None = None

    def has(self, raw: bytes) -> bool:
        """Whether the file has this line of the source; each of its lines counts once."""
        if self._rest is None:
            if self._next == raw:
                self._matched = True
                self._next = self._read()
                return True
            self._rest = self._count_rest()
        key = _digest(raw)
        if self._rest[key] == 0:
            return False
        self._rest[key] -= 1
        self._matched = True
        return True

    def is_foreign(self) -> bool:
        """Whether the file has lines, none of which the source had."""
        return not self._matched and (self._next is not None)

    def __exit__(self, *_: object) -> None:
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


class _Writer(contextlib.AbstractContextManager["_Writer"]):
    """Appends lines to a session in their order: one ``write`` for almost 1 MiB of lines of the same file."""

    def __init__(self, directory: str, target: Target) -> None:
        flags = os.O_WRONLY | os.O_APPEND
        self._files = {stream: os.open(f"{directory}/{stream}.jsonl", flags) for stream in STREAMS}
        self._target = target
        self._stream: Stream = "messages"
        self._batch: list[bytes] = []
        self._size = 0

    def append(self, record: Converted) -> None:
        """Queues a line; its blobs are stored at once, before a line can name them."""
        for blob in record.blobs:
            blobs.store(blobs.directory(self._target.agent, self._target.space), blob)
        size = len(record.raw) + 1
        if record.stream != self._stream or self._size + size > BATCH_BYTES:
            self.flush()
            self._stream = record.stream
        self._batch.append(record.raw)
        self._size += size

    def flush(self) -> None:
        """Writes what is queued; a short write stored whole lines, so the rest is written again from there."""
        data = b"".join(raw + b"\n" for raw in self._batch)
        self._batch.clear()
        self._size = 0
        while data:
            data = data[os.write(self._files[self._stream], data) :]

    def __exit__(self, *_: object) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
