"""What tests of the mount are written with: lines for logs, and the usual places in a home."""

import json
import os
import stat
from pathlib import Path
from typing import Any

from tests.mounting import RunningMount
from tests.people import ALICE

SESSION_FILES = (
    "messages.jsonl",
    "events.jsonl",
    "latest.md",
    "state",
    "cwd",
    "created_at",
    "updated_at",
    "meta.json",
)
CONTEXT_FILES = {"messages.jsonl", "log.jsonl", "transcript.md", "request.json"}


def line(role: str, content: object, **more: Any) -> bytes:
    """One line of messages.jsonl."""
    return json.dumps({"role": role, "content": content} | more).encode() + b"\n"


def said(text: str) -> bytes:
    """A line of messages.jsonl that changes latest.md."""
    return line("assistant", text)


def event(kind: str, **fields: Any) -> bytes:
    """One line of events.jsonl."""
    return json.dumps({"type": kind} | fields).encode() + b"\n"


PROMPT_HEADER = {"provider": "p", "model": "m"}
_PROMPTED = {"header": PROMPT_HEADER, "turn": 0, "step": 0, "reason": "r", "sources": []}
PROMPT = event("mark", name="prompt", data=_PROMPTED)


def append(path: Path, data: bytes) -> None:
    """One write(2) at the end of a file."""
    with path.open("ab", buffering=0) as file:
        assert file.write(data) == len(data)


def put(path: Path, text: str) -> None:
    """A value written over the one that is there, as ``echo text > path`` does."""
    with path.open("wb", buffering=0) as file:
        file.write(f"{text}\n".encode())


def listing(path: Path) -> set[str]:
    return set(os.listdir(path))


def described(path: Path) -> tuple[str, tuple[int, int]]:
    """Type and mode as ``ls -l`` shows them, and owner and group."""
    status = path.lstat()
    return stat.filemode(status.st_mode), (status.st_uid, status.st_gid)


class Home:
    """Alice's home on a mount, with an agent that she made."""

    def __init__(self, mount: RunningMount, agent: str) -> None:
        self.mount = mount
        self.path = mount.path / f"home/{ALICE.uid}"
        self.agent = self.path / "agent" / agent
        self.sessions = self.agent / "session"
        self.index = self.sessions / "index"
        self.archive = self.path / "archived_sessions"
        ALICE.does(self.agent.mkdir)

    def session(self, name: str) -> Path:
        """A new session that she made."""
        path = self.sessions / name
        ALICE.does(path.mkdir)
        return path

    def archived(self, name: str) -> Path:
        """Archives a session, making the directory where it is missing."""
        directory = self.archive / self.agent.name
        ALICE.does(directory.mkdir, exist_ok=True)
        ALICE.does((self.sessions / name).rename, directory / name)
        return directory / name

    def put_away(self, name: str) -> Path:
        """Archives a session that is the current one until then."""
        put(self.session("next").parent / "index/current", "next")
        return self.archived(name)
