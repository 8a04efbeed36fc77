"""``cortexfs``: sessions as directories of plain files, as CortexFS and the jsonl store keep them (spec 4.2, import).

A source is a session's directory. Its lines keep their bytes; their order and times are those of ``.store/order.jsonl``
where there is one, else all messages come before all events, at ``updated_at``. What the small files say and no event
does (cwd, meta.json, state) becomes an event; what the session has in ``data/blob/`` of its agent comes along. Reads
plain files only, never through a link.
"""

import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from backend.errors import CtxError, InvalidValue
from backend.lines import validate_meta
from backend.names import is_stable_path, is_uuid
from backend.rows import Stream
from backend.strict_json import MAX_LINE
from backend.transcripts.blobs import Blob, restored
from backend.transcripts.records import (
    Converted,
    Identity,
    Record,
    Unreadable,
    judged,
    made,
    numbered_lines,
    objects,
    parsed,
    session_name,
)

MESSAGES = "messages.jsonl"
_FILES: Mapping[Stream, str] = MappingProxyType({"messages": MESSAGES, "events": "events.jsonl"})
_STREAMS: tuple[Stream, Stream] = ("messages", "events")
_ENDED = frozenset(("done", "error"))
_MAX_VALUE = 64 << 10

Progress = Callable[[int], None]


def sources(path: str) -> Iterator[str]:
    """The session directories at or below ``path``, in the order of their names."""
    for directory, inner, files in os.walk(path):
        inner.sort()
        if MESSAGES in files:
            inner.clear()
            yield directory


def size(source: str) -> int:
    """Bytes of the log files."""
    return sum(
        os.path.getsize(path) for path in (f"{source}/{name}" for name in _FILES.values()) if os.path.isfile(path)
    )


def identify(source: str) -> Identity:
    """A session is called as its directory is; the index beside it may know a UUID of it."""
    directory, name = os.path.split(os.path.abspath(source))
    return Identity(session_name(name), _uuids(f"{directory}/index/by-uuid").get(name))


def convert(source: str, scope: str, progress: Progress) -> Iterator[Record]:
    """The session's lines; for one whose history is not in plain files, that this is so."""
    if os.path.lexists(f"{source}/.store/manifest.json"):
        yield Unreadable(1, "the history is in an archive that only CortexFS reads, not in this file", MESSAGES)
        return
    log = _Log(source, scope)
    for record in log.records():
        progress(log.read)
        yield record
    yield from _facts(source, scope, log)


class _Log:
    """The two files, read in the order in which they were written; what their events said so far."""

    def __init__(self, source: str, scope: str) -> None:
        self.read = 0
        self.said: dict[str, Any] = {}
        self.lines = dict[Stream, int].fromkeys(_STREAMS, 0)
        self._source = source
        self._scope = scope
        self._time = _seconds(source, "updated_at")

    def records(self) -> Iterator[Record]:
        files = {stream: _plain_file(f"{self._source}/{name}") for stream, name in _FILES.items()}
        try:
            lines = {stream: numbered_lines(file) for stream, file in files.items() if file is not None}
            for stream, time in self._order():
                if found := next(lines.get(stream, iter(())), None):
                    yield self._record(stream, *found, time)
            for stream, rest in lines.items():
                for number, raw in rest:
                    yield self._record(stream, number, raw, self._time)
        finally:
            for file in files.values():
                if file is not None:
                    file.close()

    def _order(self) -> Iterator[tuple[Stream, int | None]]:
        """File and time of each entry; nothing where the session has no order of its own, or began in another's."""
        file = _plain_file(f"{self._source}/.store/order.jsonl")
        if file is None:
            return
        with file:
            entries = objects(file)
            if next(entries, {}).get("base") is not None:
                return
            for entry in entries:
                if entry.get("stream") in _STREAMS:
                    yield entry["stream"], entry["time"] if type(entry.get("time")) is int else None

    def _record(self, stream: Stream, number: int, raw: bytes | None, time: int | None) -> Record:
        record = self._converted(stream, number, raw, time)
        self.lines[stream] = number
        if isinstance(record, Unreadable):
            return record._replace(file=_FILES[stream])
        self.read += len(raw or b"") + 1
        return record

    def _converted(self, stream: Stream, number: int, raw: bytes | None, time: int | None) -> Record:
        if raw is None:
            return Unreadable(number, "the line has more than 64 MiB")
        if stream == "messages" and len(raw) <= MAX_LINE:
            return self._with_blobs(Converted(number, stream, raw, time=time))
        try:
            value = parsed(raw)
        except InvalidValue as error:
            return Unreadable(number, str(error))
        mended = value if stream == "messages" else self._mended(value)
        if mended is not value or len(raw) > MAX_LINE:
            return made(number, stream, mended, self._scope, time)
        return self._with_blobs(Converted(number, stream, raw, time=time))

    def _mended(self, event: dict[str, Any]) -> dict[str, Any]:
        """An event as it is valid here: older starts say less, and a scope is that of the place."""
        kind = event.get("type")
        if kind == "start" and "client_id" not in event:
            event = {"client_id": event.get("id"), "scope": self._scope, "cwd": None} | event
        meta = event.get("meta")
        if kind == "meta" and isinstance(meta, dict) and meta.get("scope", self._scope) != self._scope:
            event = event | {"meta": meta | {"scope": self._scope}}
        for key in ("cwd", "meta", "state"):
            if kind in (key, "start") and event.get(key) is not None:
                self.said[key] = event[key]
        return event

    def _with_blobs(self, line: Converted) -> Record:
        blobs: list[Blob] = []

        def load(sha256: str) -> bytes:
            blobs.append(Blob(sha256, _blob(self._source, sha256)))
            return blobs[-1].content

        record = judged(line, self._scope)
        if isinstance(record, Converted) and b'"blob"' in line.raw:
            try:
                restored(line.raw, load)
            except (FileNotFoundError, ValueError):
                return Unreadable(line.number, "a blob that it names is missing or damaged in data/blob")
            record = record._replace(blobs=tuple(blobs))
        return record


def _facts(source: str, scope: str, log: _Log) -> Iterator[Record]:
    """What the small files say and the events did not."""
    number, time = log.lines["events"] + 1, _seconds(source, "updated_at")
    cwd, state = _value(source, "cwd"), _value(source, "state")
    if is_stable_path(cwd) and cwd != log.said.get("cwd", "/"):
        yield made(number, "events", {"type": "cwd", "cwd": cwd}, scope, time)
    meta = _meta(source, scope)
    if meta and meta != log.said.get("meta", {"client": "ctx", "scope": scope}):
        yield made(number, "events", {"type": "meta", "meta": meta}, scope, time)
    if state in _ENDED and "state" not in log.said:
        yield made(number, "events", {"type": "state", "from": "idle", "state": state}, scope, time)


def _meta(source: str, scope: str) -> dict[str, Any] | None:
    """meta.json as that of a session of this scope; None where it says nothing valid."""
    try:
        return validate_meta(_value(source, "meta.json").encode()) | {"scope": scope}
    except CtxError:
        return None


def _value(source: str, name: str) -> str:
    """What a small file holds; empty where there is none."""
    file = _plain_file(f"{source}/{name}")
    if file is None:
        return ""
    with file:
        return file.read(_MAX_VALUE + 1).decode("utf-8", "replace").removesuffix("\n")


def _seconds(source: str, name: str) -> int | None:
    """The time that a small file holds, in ms."""
    text = _value(source, name)
    return int(text) * 1000 if re.fullmatch(r"[0-9]{1,12}", text) else None


def _blob(source: str, sha256: str) -> bytes:
    """``data/blob/`` is beside the agent's ``session/``, or the shared space's ``agent/``."""
    agent = Path(source).absolute().parent.parent
    for base in (agent, agent.parent.parent):
        file = _plain_file(str(base / "data/blob" / sha256))
        if file is not None:
            with file:
                content = file.read()
            if hashlib.sha256(content).hexdigest() == sha256:
                return content
    raise FileNotFoundError(sha256)


def _plain_file(path: str) -> BinaryIO | None:
    """A regular file, opened without following a link to it; None where there is none."""
    if os.path.islink(path) or not os.path.isfile(path):
        return None
    return open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


@functools.lru_cache(maxsize=16)
def _uuids(directory: str) -> Mapping[str, str]:
    """The UUIDs of an index, by the names of their sessions."""
    if not os.path.isdir(directory):
        return {}
    keys = sorted(filter(is_uuid, os.listdir(directory)))
    return {_value(directory, key): key for key in keys}
