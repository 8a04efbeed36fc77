"""What a session's small files say, advanced line by line (spec 1.3): the one place that derives them.

Pure: rows in, rows out. Stores persist the result in the transaction that appends the lines.
"""

from collections.abc import Sequence

import msgspec

from backend.rows import Line, Session, Stream

INITIAL_STATE = "idle"
INITIAL_CWD = "/"


def initial_meta(scope: str) -> str:
    """meta.json of a session without a meta event, without its newline (spec 1.3)."""
    return f'{{"client":"ctx","scope":"{scope}"}}'


def later(last_ns: int, now_ns: int) -> int:
    """The next mtime of a file that changed: strictly increasing, whatever the clock does (spec 1.2)."""
    return max(now_ns, last_ns + 1)


def stream_size(session: Session, stream: Stream) -> int:
    """Bytes of a log file."""
    return session.messages_size if stream == "messages" else session.events_size


def advance(
    session: Session, lines: Sequence[Line], *, time_ms: int, now_ns: int, seq: int
) -> tuple[Session, frozenset[str]]:
    """The session after ``lines``, and the names of the files in it that changed.

    ``time_ms`` is the entries' time, ``now_ns`` the clock for mtimes, ``seq`` the commit's sequence.
    A value that is recorded again as it was changes no file but events.jsonl (and ``cwd_seq``).
    """
    change: dict[str, int | str] = {"n": session.n + len(lines), "seq": seq, "updated_at": time_ms}
    shown: dict[str, int | str] = {}
    messages, events = session.messages_size, session.events_size
    for number, line in enumerate(lines, session.n):
        if line.stream == "messages":
            messages += len(line.raw) + 1
            shown["messages_size"] = messages
        else:
            events += len(line.raw) + 1
            shown["events_size"] = events
        if line.latest_size is not None:
            change["latest_size"], shown["latest_n"] = line.latest_size, number
        if line.cwd is not None:
            shown["cwd"], change["cwd_seq"] = line.cwd, seq
        if line.state is not None:
            shown["state"] = line.state
        if line.meta is not None:
            shown["meta"] = line.meta
    files: list[str] = []
    for key, value in shown.items():
        if value != getattr(session, key):
            file, mtime = _FILES[key]
            files.append(file)
            change[key], change[mtime] = value, later(getattr(session, mtime), now_ns)
    if time_ms // 1000 != session.updated_at // 1000:
        files.append("updated_at")
        change["updated_mtime"] = later(session.updated_mtime, now_ns)
    return msgspec.structs.replace(session, **change), frozenset(files)


# What a file shows, its name, and its mtime; latest.md is another one whenever it comes from another entry.
_FILES = {
    "messages_size": ("messages.jsonl", "messages_mtime"),
    "events_size": ("events.jsonl", "events_mtime"),
    "latest_n": ("latest.md", "latest_mtime"),
    "state": ("state", "state_mtime"),
    "cwd": ("cwd", "cwd_mtime"),
    "meta": ("meta.json", "meta_mtime"),
}
