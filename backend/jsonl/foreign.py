"""The small files of a session that CortexFS wrote, read as they are (spec 2.9, last paragraph).

Lenient: a file that is missing, not a regular one, too big or not a value counts as the initial value. Reads only.
"""

import os

import msgspec

from backend.jsonl.disk import exists, read_small, regular
from backend.names import is_stable_path
from backend.rows import Session

FOREIGN_STATES = frozenset(("active", "idle", "done", "error", "cancelled"))

_MAX_VALUE = 64 * 1024
_MAX_SECONDS = 1 << 40
_MTIMES = {
    "created_at": "created_mtime",
    "updated_at": "updated_mtime",
    "messages.jsonl": "messages_mtime",
    "events.jsonl": "events_mtime",
    "latest.md": "latest_mtime",
    "state": "state_mtime",
    "cwd": "cwd_mtime",
    "meta.json": "meta_mtime",
}


def with_values(directory: str, row: Session) -> Session:
    """``row`` with the values that the session's small files have, and what ``with_files`` finds."""
    row = with_files(directory, row)
    created = _seconds(directory, "created_at", min(row.created_mtime, row.messages_mtime))
    cwd = _value(directory, "cwd") or ""
    known_cwd = is_stable_path(cwd)
    return msgspec.structs.replace(
        row,
        created_at=created,
        updated_at=_seconds(directory, "updated_at", max(row.messages_mtime, row.events_mtime)),
        state=state if (state := read_state(directory)) else row.state,
        cwd=cwd if known_cwd else row.cwd,
        cwd_seq=row.seq if known_cwd and row.events_size else 0,
        meta=_meta(directory) or row.meta,
    )


def read_state(directory: str) -> str | None:
    """The state a foreign session's file has, None where it has none that is known."""
    state = _value(directory, "state")
    return state if state in FOREIGN_STATES else None


def has_unreadable_state(directory: str) -> bool:
    """Whether there is a state that cannot be read: such a session may be active (spec 4.4)."""
    return exists(f"{directory}/state") and read_state(directory) is None


def with_files(directory: str, row: Session) -> Session:
    """``row`` with the sizes of the log files, and the mtimes of all: the directory's for a missing one, never 0."""
    otherwise = os.lstat(directory).st_mtime_ns
    found = {field: regular(f"{directory}/{name}") for name, field in _MTIMES.items()}
    times = {field: max(1, stat.st_mtime_ns if stat else otherwise) for field, stat in found.items()}
    messages, events = found["messages_mtime"], found["events_mtime"]
    sizes = {
        "messages_size": messages.st_size if messages else 0,
        "events_size": events.st_size if events else 0,
    }
    return msgspec.structs.replace(row, **times, **sizes)


def updated_at(directory: str) -> int:
    """When a session was updated, by its own file or its directory's mtime; ms."""
    return _seconds(directory, "updated_at", os.lstat(directory).st_mtime_ns)


def read_value(path: str) -> str | None:
    """The one value of a control file; its newline is optional. None for anything else."""
    content = read_small(path, _MAX_VALUE)
    if content is None:
        return None
    try:
        value = content.decode().removesuffix("\n")
    except UnicodeDecodeError:
        return None
    return value if value and value == value.strip() and "\n" not in value else None


def _value(directory: str, name: str) -> str | None:
    return read_value(f"{directory}/{name}")


def _seconds(directory: str, name: str, otherwise_ns: int) -> int:
    """The ms of a file that holds Unix seconds."""
    text = _value(directory, name) or ""
    if text.isascii() and text.isdigit() and len(text) < 16 and int(text) < _MAX_SECONDS:
        return int(text) * 1000
    return otherwise_ns // 1_000_000


def _meta(directory: str) -> str | None:
    text = _value(directory, "meta.json")
    try:
        held = msgspec.json.decode(text or "")
    except msgspec.DecodeError:
        return None
    return text if type(held) is dict else None
