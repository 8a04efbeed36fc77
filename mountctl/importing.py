"""Importing one source after the other into an agent's sessions (spec 4.2).

A source is read through before anything is written, so that its session can be left out whole; a small one is held in
memory, a big one is read twice. What the sessions have already is compared (``import_presence``), the rest goes to a
``Writer`` in batches.
"""

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from backend.names import child_name, is_uuid
from backend.transcripts.records import (
    Child,
    Converted,
    Identity,
    Position,
    Record,
    Unreadable,
    digest,
    session_name,
)
from mountctl import blobs, places, sessions
from mountctl.archiving import archived
from mountctl.cli import Failure
from mountctl.ctx_session_new import make_owner
from mountctl.import_files import BATCH_BYTES, Writer
from mountctl.import_formats import Format, Progress
from mountctl.import_presence import Present

HELD_BYTES = 4 << 20
MAX_REPORTED = 1000


class Target(NamedTuple):
    """Whose sessions they become."""

    agent: str
    space: str | None

    @property
    def sessions(self) -> str:
        return f"{places.owner(self.agent, self.space)}/session"

    @property
    def scope(self) -> str:
        return "private" if self.space is None else "shared"

    def require(self) -> None:
        """``Failure`` unless the mount can have such an agent there."""
        places.owner(self.agent, self.space)


class Imported(NamedTuple):
    """What came of one source: its sessions, lines added, already there, and skipped as unreadable.

    ``archived``: those of its sessions that are archived, and stay so.
    """

    sessions: tuple[str, ...] = ()
    added: int = 0
    present: int = 0
    skipped: int = 0
    archived: tuple[str, ...] = ()


class Checked(NamedTuple):
    """A source that was read through: its records if it is small, how many lines it gives, what is wrong with it.

    ``bad`` lines cannot be read, ``replaced`` ones lost characters; ``faults`` are the first of them all.
    """

    records: list[Record] | None
    lines: int
    needs_blobs: bool
    bad: int
    replaced: int
    faults: list[Unreadable]


def check(source: str, form: Format, scope: str, progress: Progress) -> Checked:
    """Reads a source through; keeps at most 1000 of its faults."""
    held: list[Record] | None = [] if form.size(source) <= HELD_BYTES else None
    lines, needs_blobs, bad, replaced, faults = 0, False, 0, 0, list[Unreadable]()
    for record in form.convert(source, scope, progress):
        if held is not None:
            held.append(record)
        if isinstance(record, Converted):
            lines += 1
            needs_blobs = needs_blobs or bool(record.blobs)
            if not record.replaced:
                continue
            replaced += 1
            fault = Unreadable(record.number, "NUL or an unpaired surrogate in it became U+FFFD", form.part(record))
        elif isinstance(record, Unreadable):
            bad += 1
            fault = record
        else:
            continue
        if len(faults) < MAX_REPORTED:
            faults.append(fault)
    return Checked(held, lines, needs_blobs, bad, replaced, faults)


class Importer:
    """All sources of one command, for one agent."""

    def __init__(self, target: Target, writer: Writer) -> None:
        self._target = target
        self._writer = writer
        self._names = set(sessions.names(target.sessions))
        self._archived = archived(target.agent, target.space)
        self._known = _listed(f"{target.sessions}/index/by-uuid")
        self._mapped: dict[str, str] = {}
        self._claims: dict[str, str] = {}

    def knows(self, session: str) -> bool:
        """Whether there is a session for the source's id of one."""
        return self._name_of(session) is not None

    def transfer(self, source: str, identity: Identity, records: Iterable[Record]) -> Imported:
        """Appends what the source's sessions do not have; makes those that are new (``Failure``).

        What was archived stays so: a session that is wanted again is one that was not put aside.
        """
        name = self._claimed(source, identity)
        if self._is_archived(name):
            return Imported(archived=(name,))
        if name in self._names:
            main = self._found(name, Position())
        else:
            main = self._new(name)
            if identity.parent is not None and (parent := self._name_of(identity.parent)) is not None:
                self._branch(parent, main, 0)
        logs, left = {0: main}, dict[int, str]()
        try:
            skipped = self._feed(records, logs, left)
        finally:
            for log in logs.values():
                log.close()
        if identity.uuid is not None and self._session_of(identity.uuid) is None:
            self._mapped[identity.uuid] = name
            self._writer.map(identity.uuid, name)
        return Imported(
            tuple(log.name for log in logs.values()),
            sum(log.added for log in logs.values()),
            sum(log.present for log in logs.values()),
            skipped,
            tuple(left.values()),
        )

    def settle(self) -> Mapping[str, str]:
        """Waits for the writer; sessions that were not written whole, and why."""
        return self._writer.settle()

    def _claimed(self, source: str, identity: Identity) -> str:
        """The name of a source's session; no other source of this import may have the same by accident."""
        if identity.uuid is not None:
            return self._session_of(identity.uuid) or identity.name
        if identity.parent is not None:
            return self._own_name(identity.name, identity.parent)
        if self._claims.setdefault(identity.name, source) != source:
            raise Failure(f"its session {identity.name} is that of {self._claims[identity.name]}")
        return identity.name

    def _own_name(self, name: str, parent: str) -> str:
        """The name of a child, which need not be different from those of other sessions' children in the source."""
        owner = self._name_of(parent)
        mine = None if owner is None else sessions.attribute(f"{self._target.sessions}/{owner}", "uuid")
        if name not in self._names or sessions.attribute(f"{self._target.sessions}/{name}", "parent") == mine:
            return name
        return child_name(name, digest(parent)[:8])

    def _name_of(self, session: str) -> str | None:
        name = (self._session_of(session) if is_uuid(session) else None) or session_name(session)
        return name if name in self._names else None

    def _session_of(self, uuid: str) -> str | None:
        """What by-uuid/ says, or will say once this import is done."""
        if uuid in self._known and uuid not in self._mapped:
            self._mapped[uuid] = sessions.read_value(f"{self._target.sessions}/index/by-uuid/{uuid}")
        return self._mapped.get(uuid)

    def _feed(self, records: Iterable[Record], logs: dict[int, "_Log"], left: dict[int, str]) -> int:
        """Sends each record to its log; how many were unreadable. Chains of ``left`` are archived, by name."""
        skipped = 0
        for record in records:
            if isinstance(record, Unreadable):
                skipped += 1
            elif isinstance(record, Child):
                parent = left.get(record.parent) or logs[record.parent].name
                name = child_name(parent, record.key)
                if record.parent in left or self._is_archived(name):
                    left[record.chain] = name
                else:
                    logs[record.chain] = self._child(name, record.at, logs[record.parent])
            elif record.chain not in left:
                self._add(logs[record.chain], record)
        for log in logs.values():
            self._flush(log)
        return skipped

    def _is_archived(self, name: str) -> bool:
        return name in self._archived and name not in self._names

    def _child(self, name: str, at: Position, parent: "_Log") -> "_Log":
        if name in self._names:
            return self._found(name, at)
        if not parent.reaches(at):
            raise Failure(f"session {parent.name} has lines of others where its branch {name} begins")
        self._flush(parent)
        log = self._new(name)
        self._branch(parent.name, log, at.entries)
        return log

    def _branch(self, parent: str, child: "_Log", at: int) -> None:
        self._writer.branch(parent, child.name, at)
        child.n = at

    def _found(self, name: str, start: Position) -> "_Log":
        directory = f"{self._target.sessions}/{name}"
        return _Log(name, Present(directory, start), int(sessions.attribute(directory, "n") or 0))

    def _new(self, name: str) -> "_Log":
        if not self._names:
            make_owner(self._target.agent, self._target.space)
        self._names.add(name)
        return _Log(name, None, None)

    def _add(self, log: "_Log", line: Converted) -> None:
        if log.has(line):
            return
        for blob in line.blobs:
            blobs.store(blobs.directory(self._target.agent, self._target.space), blob)
        size = len(line.raw) + 1
        if log.size + size > BATCH_BYTES:
            self._flush(log)
        log.queued.append(line)
        log.size += size

    def _flush(self, log: "_Log") -> None:
        if log.queued:
            self._writer.append(log.name, log.queued, log.n)
            log.n = (log.n or 0) + len(log.queued)
            log.queued = []
            log.size = 0


class _Log:
    """A session that is written: what it had, and what is queued for it. ``n``: its entries, None before it is made."""

    def __init__(self, name: str, old: Present | None, n: int | None) -> None:
        self.name = name
        self.n = n
        self.queued: list[Converted] = []
        self.size = 0
        self.added = 0
        self.present = 0
        self._old = old

    def has(self, line: Converted) -> bool:
        """Whether the session has the line; counts it (``Failure``: it has others, and is no import of this source)."""
        if self._old is not None:
            if self._old.has(line.stream, line.raw):
                self.present += 1
                return True
            if self._old.is_foreign():
                raise Failure(f"session {self.name} exists and is not an import of this file")
        self.added += 1
        return False

    def reaches(self, at: Position) -> bool:
        """Whether its first entries are exactly the source's up to ``at``."""
        return self._old is None or self._old.reaches(at)

    def close(self) -> None:
        if self._old is not None:
            self._old.close()


def _listed(directory: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(directory))
    except FileNotFoundError:
        return frozenset()
