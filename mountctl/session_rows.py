"""An agent's sessions with what a listing shows of each: from ``agent/ctx.sock`` at once, else from their files."""

import contextlib
from collections.abc import Iterator

from mountctl import ctx_socket, sessions
from mountctl.ctx_socket import Refused
from mountctl.sessions import SessionRow, directory_of


def rows(agent: str, space: str | None) -> Iterator[SessionRow]:
    """The most recently updated first, as ``sessions.rows`` (``Failure``: there is no such agent)."""
    directory = directory_of(agent, space)
    told = _told(agent, space)
    return sessions.rows(directory) if told is None else iter(told)


def newest(agent: str, space: str | None) -> tuple[int, SessionRow] | None:
    """How many sessions an agent has, and the one that ``rows`` gives first; None while it has none."""
    told = _told(agent, space)
    if told is None:
        directory = directory_of(agent, space)
        found = sessions.recent(directory)
        return (len(found), sessions.row(directory, found[0])) if found else None
    return (len(told), told[0]) if told else None


def _told(agent: str, space: str | None) -> list[SessionRow] | None:
    """What the daemon says of them; None where there is none to ask, or it lets only files be read."""
    connection = ctx_socket.connect() if ctx_socket.knows(space) else None
    if connection is None:
        return None
    with contextlib.closing(connection):
        try:
            found = list(connection.frames({"op": "sessions", "agent": agent, **ctx_socket.place(space)}))
        except Refused:
            return None
    found.sort(key=lambda frame: (frame["updated_at"], frame["seq"]), reverse=True)
    return [SessionRow(*(frame[field] for field in SessionRow._fields)) for frame in found]
