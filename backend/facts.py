"""What a session's small files say, advanced line by line (spec 1.3): the one place that derives them.

Pure: rows in, rows out. Stores persist the result in the transaction that appends the lines.
"""

from collections.abc import Sequence

import msgspec

from backend.store import Line, Session

INITIAL_STATE = "idle"
INITIAL_CWD = "/"


def initial_meta(scope: str) -> str:
    """meta.json of a session without a meta event, without its newline (spec 1.3)."""
    return f'{{"client":"ctx","scope":"{scope}"}}'


def later(last_ns: int, now_ns: int) -> int:
    """The next mtime of a file that changed: strictly increasing, whatever the clock does (spec 1.2)."""
    return max(now_ns, last_ns + 1)


def advance(
    session: Session, lines: Sequence[Line], *, time_ms: int, now_ns: int, seq: int
) -> tuple[Session, frozenset[str]]:
    """The session after ``lines``, and the names of the files in it that changed.

    ``time_ms`` is the entries' time, ``now_ns`` the clock for mtimes, ``seq`` the commit's sequence.
    A value that is recorded again as it was changes no file but events.jsonl (and ``cwd_seq``).
    """
    change: dict[str, int | str] = {"n": session.n + len(lines), "seq": seq, "updated_at": time_ms}
    files: set[str] = set()
    for number, line in enumerate(lines, session.n):
        size = f"{line.stream}_size"
        change[size] = int(change.get(size, getattr(session, size))) + len(line.raw) + 1
        files.add(f"{line.stream}.jsonl")
        if line.latest_size is not None:
            change |= {"latest_size": line.latest_size, "latest_n": number}
            files.add("latest.md")
        if line.cwd is not None:
            change["cwd_seq"] = seq
        change |= {key: value for key in ("state", "cwd", "meta") if (value := getattr(line, key)) is not None}
    files |= _changed_values(session, change)
    change |= _mtimes(session, files, now_ns)
    return msgspec.structs.replace(session, **change), frozenset(files)


_VALUES = {"state": "state", "cwd": "cwd", "meta": "meta.json"}
_MTIMES = {
    "messages.jsonl": "messages_mtime",
    "events.jsonl": "events_mtime",
    "latest.md": "latest_mtime",
    "state": "state_mtime",
    "cwd": "cwd_mtime",
    "meta.json": "meta_mtime",
    "updated_at": "updated_mtime",
}


def _changed_values(session: Session, change: dict[str, int | str]) -> set[str]:
    files = {file for key, file in _VALUES.items() if change.get(key, getattr(session, key)) != getattr(session, key)}
    if int(change["updated_at"]) // 1000 != session.updated_at // 1000:
        files.add("updated_at")
    return files


def _mtimes(session: Session, files: set[str], now_ns: int) -> dict[str, int]:
    return {_MTIMES[file]: later(getattr(session, _MTIMES[file]), now_ns) for file in files}
