"""What the listing commands read of sessions, by ordinary file operations (spec 1.2, 1.9)."""

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import NamedTuple

from mountctl import places
from mountctl.cli import UNAVAILABLE, Failure

_MOST_READS = 10


class SessionRow(NamedTuple):
    """One session; ``size`` in bytes of both log files, ``updated_at`` in seconds; None where it is not known.

    ``parent`` is the id of the session it was branched from, ``at`` the number of entries that it has of that one.
    """

    name: str
    id: str | None
    state: str
    updated_at: int
    entries: int | None
    size: int
    cwd: str
    parent: str | None
    at: int | None


def directory_of(agent: str, space: str | None) -> str:
    """The ``session/`` directory of an agent or model that is there (``Failure`` names those that are)."""
    directory = f"{places.owner(agent, space)}/session"
    try:
        os.stat(directory)
    except FileNotFoundError:
        raise Failure(_missing(agent, space)) from None
    return directory


def _missing(agent: str, space: str | None) -> str:
    kind, listed = ("models", places.models) if agent.startswith(places.MODEL_PREFIX) else ("agents", places.agents)
    return f"there is no {agent!r}: {places.known(kind, listed(space))}"


def owners(space: str | None) -> list[str]:
    """The agents of a space, then its models, by name, as commands take them (``Failure``: there is no such space)."""
    return sorted(places.agents(space)) + sorted(places.models(space))


def names(directory: str) -> list[str]:
    """The sessions below a ``session/`` directory, last appended to first; none where there is no such."""
    try:
        return read_value(f"{directory}/index/list").split()
    except FileNotFoundError:
        return []


def read_value(path: str) -> str:
    """The value that a small file holds.

    Where it grows just after it shrank, a reader whom another's stat overtakes is shown zeros by the kernel, once.
    """
    for _ in range(_MOST_READS):
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            value = file.read()
        if "\0" not in value:
            break
    return value.removesuffix("\n")


def recent(directory: str) -> list[str]:
    """The sessions below a ``session/`` directory, most recently updated first.

    That is not the order of ``names``: what an import appends today may be years old. Those of one second stay in it.
    A session directory's mtime is its last entry's time (spec 1.2). What is archived meanwhile is left out.
    """
    times = dict[str, int]()
    for name in names(directory):
        with contextlib.suppress(FileNotFoundError):
            times[name] = int(os.stat(f"{directory}/{name}").st_mtime)
    return sorted(times, key=times.__getitem__, reverse=True)


def rows(directory: str) -> Iterator[SessionRow]:
    """The sessions of a ``session/`` directory, in the order of ``recent``; what is archived meanwhile is left out.

    Several requests a session: ``session_rows.rows`` is quicker where it can be.
    """
    for name in recent(directory):
        try:
            yield row(directory, name)
        except FileNotFoundError:
            continue


def row(directory: str, name: str) -> SessionRow:
    """What the files of a session say (``FileNotFoundError``)."""
    path = f"{directory}/{name}"
    return SessionRow(
        name=name,
        id=attribute(path, "uuid"),
        state=read_value(f"{path}/state"),
        updated_at=int(read_value(f"{path}/updated_at")),
        entries=_number(attribute(path, "n")),
        size=size_of(path),
        cwd=read_value(f"{path}/cwd"),
        parent=attribute(path, "parent"),
        at=_number(attribute(path, "at")),
    )


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def size_of(path: str) -> int:
    """Bytes of a session's log."""
    return os.stat(f"{path}/messages.jsonl").st_size + os.stat(f"{path}/events.jsonl").st_size


def require_session(directory: str) -> None:
    """``Failure`` unless that is a session's directory on a ctxfs mount, so that its commands do what they say."""
    try:
        os.getxattr(directory, "user.ctx.uuid")
    except FileNotFoundError:
        raise places.no_session(directory) from None
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.ENOTSUP):
            raise
        raise Failure(f"{directory} is not on a ctxfs mount", UNAVAILABLE) from None


def attribute(directory: str, name: str) -> str | None:
    """What a session says of itself (spec 1.9), None where it does not."""
    try:
        return os.getxattr(directory, f"user.ctx.{name}").decode("utf-8", "surrogateescape")
    except OSError:
        return None
