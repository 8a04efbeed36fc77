"""What the benchmark measures on: mounts on stores that were filled beforehand, and native trees of the same shape.

Stores are filled through the store's own interface, a mount is only for measuring. All of it is gone when the bench
ends.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend.lines import parse_line
from backend.rows import Append
from backend.sqlite import SqliteStore
from tests.mounting import RunningMount, running_mount

SPACE = "home/0"
LISTED = "listed"
WRITTEN = "written"
LOGS = "logs"
WRITERS = 8
LINE_BYTES = 1024
_BATCH = 4096


@dataclass(frozen=True)
class Contents:
    """What a store holds: ``listed`` sessions of one agent with one line each; logs of so many lines of 1 KiB.

    Beside them one session for each of 8 writers, and one that nobody else touches for single writers.
    """

    listed: int
    logs: Mapping[str, int] = field(default_factory=dict)


class Served:
    """A mount of a store with such contents."""

    def __init__(self, mount: RunningMount) -> None:
        self.mount = mount

    @property
    def pid(self) -> int:
        return self.mount.pid

    def sessions(self, agent: str) -> Path:
        """The directory of an agent's sessions."""
        return self.mount.path / SPACE / "agent" / agent / "session"

    def log(self, agent: str, session: str) -> Path:
        """A session's messages.jsonl."""
        return self.sessions(agent) / session / "messages.jsonl"

    @property
    def data(self) -> Path:
        """An ordinary directory."""
        return self.mount.path / SPACE / "agent" / LOGS / "data"

    def writers(self) -> list[Path]:
        """The logs of the 8 writers' sessions."""
        return [self.log(WRITTEN, f"w{number}") for number in range(WRITERS)]


@contextlib.contextmanager
def serve(contents: Contents) -> Iterator[Served]:
    """A mount of a new store with these contents."""
    with running_mount() as mount:
        agents = mount.path / SPACE / "agent"
        for agent in (LISTED, WRITTEN, LOGS):
            (agents / agent).mkdir()
        assert mount.stop() == 0
        _fill(mount.store, contents)
        mount.start()
        yield Served(mount)


def names(count: int) -> Sequence[str]:
    """The names of the listed sessions."""
    return [f"s{number:06}" for number in range(count)]


def _fill(store_dir: Path, contents: Contents) -> None:
    store = SqliteStore.open_now(store_dir)
    try:
        made = _make(store, LISTED, names(contents.listed))
        _make(store, WRITTEN, ["single", *(f"w{number}" for number in range(WRITERS))])
        for start in range(0, len(made), _BATCH):
            _append(store, made[start : start + _BATCH], 1)
        for session, lines in zip(_make(store, LOGS, list(contents.logs)), contents.logs.values(), strict=True):
            for start in range(0, lines, _BATCH):
                _append(store, [session], min(lines - start, _BATCH))
                store.maintain()
        store.maintain()
    finally:
        store.close()


def _make(store: SqliteStore, agent: str, sessions: Sequence[str]) -> list[int]:
    owner = store.owner(SPACE, "agent", agent)
    assert owner is not None
    return [store.create_session(owner.id, name, 0).id for name in sessions]


def _append(store: SqliteStore, sessions: Sequence[int], lines: int) -> None:
    for result in store.append([Append(session, [LINE] * lines) for session in sessions]):
        if isinstance(result, Exception):
            raise result


def _line(size: int) -> bytes:
    head, tail = b'{"role":"assistant","content":"', b'"}\n'
    return head + b"x" * (size - len(head) - len(tail)) + tail


RAW_LINE = _line(LINE_BYTES)
LINE = parse_line("messages", RAW_LINE[:-1], scope="private")


def native_sessions(base: Path, count: int) -> Path:
    """Directories and files on a native file system, as far below ``base`` as sessions are below a mount."""
    sessions = base / SPACE / "agent" / LISTED / "session"
    sessions.mkdir(parents=True)
    for name in names(count):
        os.mkdir(sessions / name)
        with open(sessions / name / "messages.jsonl", "wb") as file:
            file.write(RAW_LINE)
    return sessions


def native_log(path: Path, lines: int) -> Path:
    """A plain file with the same bytes as a log of so many lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        for start in range(0, lines, _BATCH):
            file.write(RAW_LINE * min(lines - start, _BATCH))
    return path
