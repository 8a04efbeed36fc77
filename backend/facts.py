"""What a session's small files say, advanced line by line (spec 1.3): the one place that derives them.

Pure: rows in, rows out. Stores persist the result in the transaction that appends the lines.
"""

from collections.abc import Mapping, Sequence

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
    sizes = {"messages": session.messages_size, "events": session.events_size}
    for number, line in enumerate(lines, session.n):
        sizes[line.stream] += len(line.raw) + 1
        if line.latest_size is not None:
            change["latest_size"], change["latest_n"] = line.latest_size, number
        if line.cwd is not None:
            change["cwd"], change["cwd_seq"] = line.cwd, seq
        if line.state is not None:
            change["state"] = line.state
        if line.meta is not None:
            change["meta"] = line.meta
    change["messages_size"], change["events_size"] = sizes["messages"], sizes["events"]
    files = _changed(session, change)
    for file in files:
        mtime = _MTIMES[file]
        change[mtime] = later(getattr(session, mtime), now_ns)
    return msgspec.structs.replace(session, **change), files


_VALUES = {
    "messages_size": "messages.jsonl",
    "events_size": "events.jsonl",
    "latest_n": "latest.md",
    "state": "state",
    "cwd": "cwd",
    "meta": "meta.json",
}
_MTIMES = {
    "messages.jsonl": "messages_mtime",
    "events.jsonl": "events_mtime",
    "latest.md": "latest_mtime",
    "state": "state_mtime",
    "cwd": "cwd_mtime",
    "meta.json": "meta_mtime",
    "updated_at": "updated_mtime",
}


def _changed(session: Session, change: Mapping[str, int | str]) -> frozenset[str]:
    """The files whose content that changes; latest.md whenever it comes from another entry."""
    files = [file for key, file in _VALUES.items() if key in change and change[key] != getattr(session, key)]
    if int(change["updated_at"]) // 1000 != session.updated_at // 1000:
        files.append("updated_at")
    return frozenset(files)
