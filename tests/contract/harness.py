"""A store under test, and the few words the contract tests are written in."""

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import trio

from backend.entries import FORMAT_VERSION, SessionHeader
from backend.errors import CtxError
from backend.jsonl import JsonlStore
from backend.lines import parse_line
from backend.memory import MemoryStore
from backend.rows import Append, Appended, ArchiveDirectory, Line, Owner, Session
from backend.sqlite import SqliteStore
from backend.store import Store

T = TypeVar("T")

START = 1_700_000_000_000_000_000


class Clock:
    """A clock that stands still until a test moves it, or moves by ``step`` ns whenever it is read."""

    def __init__(self) -> None:
        self.now = START
        self.step = 0

    def __call__(self) -> int:
        self.now += self.step
        return self.now

    def pass_seconds(self, seconds: int) -> None:
        self.now += seconds * 1_000_000_000


def wait(function: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> T:
    """The result of an async call."""

    async def call() -> T:
        return await function(*args, **named)

    return trio.run(call)


class Harness:
    """An open store with a clock; ``home`` is a space, ``owner`` an agent in it."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.clock = Clock()
        self._directory = directory
        self.store = self._open()
        self.home = self.store.add_space("home/1000", 1000, 1000, 0o700)
        self.owner = self.store.add_owner("home/1000", "agent", "coder", 1000, 1000)

    def _open(self) -> Store:
        match self.kind:
            case "sqlite":
                return wait(SqliteStore.open, self._directory / "store", clock=self.clock)
            case "jsonl":
                return wait(JsonlStore.open, self._directory / "tree", clock=self.clock)
        return MemoryStore(self.clock)

    def reopen(self) -> None:
        """Closes the store and opens it again, as after a restart."""
        self.store.close()
        self.store = self._open()

    def open_copy(self, directory: Path) -> None:
        """Opens a copy of its directory; the store is closed."""
        self._directory = directory
        self.store = self._open()

    def session(self, name: str, owner: Owner | None = None) -> Session:
        """A new session."""
        return self.store.create_session((owner or self.owner).id, name, 1000)

    def append(self, session: Session, *lines: Line, **named: Any) -> Appended:
        """Appends, and raises what refuses."""
        [result] = self.store.append([Append(session.id, lines, **named)])
        if isinstance(result, CtxError):
            raise result
        return result

    def now(self, session: Session) -> Session:
        """The session as it is now."""
        row = self.store.session_by_id(session.id)
        assert row is not None
        return row

    def owner_now(self) -> Owner:
        row = self.store.owner_by_id(self.owner.id)
        assert row is not None
        return row

    def listed(self) -> list[str]:
        """The names in index/list; its recorded size must be exact."""
        content = self.store.list_content(self.owner.id)
        assert len(content) == self.owner_now().list_size
        return content.decode().splitlines()

    def mapped(self, kind: Any) -> dict[str, str]:
        """An index directory as key → session name."""
        return {row.key: row.session for row in self.store.mappings(self.owner.id, kind)}

    def archive(self, name: str = "coder") -> ArchiveDirectory:
        """A directory of archived_sessions/."""
        found = self.store.archive_directory("home/1000", None, name)
        return found or self.store.add_archive_directory("home/1000", None, name, 1000)

    def stream(self, session: Session, stream: Any) -> bytes:
        """All of a log file; its recorded size must be exact."""
        content = self.store.read_stream(session.id, stream, 0, 1 << 30)
        assert len(content) == getattr(self.now(session), f"{stream}_size")
        return content


def line(stream: Any, value: dict[str, Any]) -> Line:
    return parse_line(stream, json.dumps(value).encode())


def say(text: str, role: str = "user") -> Line:
    """A line of messages.jsonl."""
    return line("messages", {"role": role, "content": text})


def event(type: str, **fields: Any) -> Line:
    """A line of events.jsonl."""
    return line("events", {"type": type, **fields})


def cd(path: str) -> Line:
    return event("cwd", cwd=path)


def header(session_id: str, **fields: Any) -> SessionHeader:
    return SessionHeader(
        session_id=session_id,
        **{"format_version": FORMAT_VERSION, "created_at": 1, "delegation_depth": 0} | fields,
    )


def raws(lines: Sequence[Line]) -> bytes:
    return b"".join(line.raw + b"\n" for line in lines)
