"""Archiving and deleting live sessions by ordinary file operations (spec 4.4): who is protected, where to, one by one.

A session is moved by one ``renameat2`` with ``RENAME_NOREPLACE``, in which the mount checks once more that it is not
active and takes it out of the index: whatever happens in between, and whenever this process ends, a session is either
live or archived, whole. Nothing is ever copied. What is refused is refused before anything is made.
"""

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from backend.names import is_archive_directory_name
from backend.system_calls import RENAME_NOREPLACE, rename
from mountctl import places
from mountctl.cli import DENIED, UNAVAILABLE, USAGE, Failure
from mountctl.sessions import directory_of, read_value
from mountctl.text import escaped_name

ARCHIVE = "archived_sessions"


class Owner(NamedTuple):
    """Whose sessions: their ``session/`` directory, their space's, where below an archive they go, the current one."""

    sessions: str
    space: str
    shelf: str
    current: str


class Changed(Failure):
    """A session that had to stay at the last moment: it became active, or is not there any more."""


def owner_of(agent: str, shared: str | None) -> Owner:
    """An agent or model that is there (``Failure``)."""
    shelf = _shelf_name(agent)
    return Owner(directory_of(agent, shared), places.space(shared), shelf, places.current(agent, shared))


def _shelf_name(agent: str) -> str:
    model = places.owner_name(agent).removeprefix(places.MODEL_PREFIX)
    return agent if model == agent else f"model/{model}.d"


def archived(agent: str, shared: str | None) -> frozenset[str]:
    """The names of an agent's or model's archived sessions, wherever in the archive of its space (``Failure``)."""
    shelf, found = f"/{_shelf_name(agent)}", set[str]()
    todo = [f"{places.space(shared)}/{ARCHIVE}"]
    while todo:
        directory = todo.pop()
        with suppress(FileNotFoundError), os.scandir(directory) as entries:
            for entry in entries:
                # Sessions are read-only there, and nothing else is (spec 1.8).
                if entry.stat(follow_symlinks=False).st_mode & stat.S_IWUSR:
                    todo.append(entry.path)
                elif directory.endswith(shelf):
                    found.add(entry.name)
    return frozenset(found)


def archive_dir(text: str | None) -> str | None:
    """The value of ``--archive-dir``, judged by itself (``Failure``, usage)."""
    if text is not None and not text.startswith("/"):
        raise Failure("--archive-dir must be an absolute path", USAGE)
    if text is not None and ".." in text.split("/"):
        raise Failure("--archive-dir must not contain parent path components", USAGE)
    return text


def protection(owner: Owner, name: str, kept: Collection[str] = ()) -> str | None:
    """Why a session stays; None if it may go."""
    if name == "default":
        return "it is the default session"
    if name == owner.current:
        return "it is the current session"
    if name in kept:
        return "--keep names it"
    return _state_protection(f"{owner.sessions}/{name}/state")


def _state_protection(path: str) -> str | None:
    try:
        state = read_value(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"its state cannot be read: {error.strerror}"
    return "it is active" if state.strip() == "active" else None


def shelf_of(owner: Owner, chosen: str | None) -> str:
    """The directory that the owner's sessions are archived in, all links resolved; it need not be there (``Failure``).

    ``chosen`` stands for ``archived_sessions`` of the owner's space, and must be that or below it.
    """
    base = f"{os.path.realpath(owner.space)}/{ARCHIVE}"
    root = base if chosen is None else os.path.realpath(chosen)
    shelf, sessions = f"{root.rstrip('/')}/{owner.shelf}", os.path.realpath(owner.sessions)
    shown = escaped_name(root)
    if any(os.path.commonpath((path, sessions)) in (path, sessions) for path in (root, shelf)):
        raise Failure(f"session archive dir overlaps live session storage: {shown}", UNAVAILABLE)
    if os.path.commonpath((root, base)) != base:
        raise Failure(f"session archive is on another filesystem: {shown} is not below {base}", UNAVAILABLE)
    for part in root[len(base) :].split("/"):
        if part and not is_archive_directory_name(part):
            raise Failure(f"invalid archive directory name: {escaped_name(part)}", USAGE)
    return shelf


def conflict(shelf: str, name: str) -> Failure | None:
    """The failure of a session whose place in the archive is taken, by whatever."""
    path = f"{shelf}/{name}"
    return Failure(f"session archive already exists: {path}", UNAVAILABLE) if os.path.lexists(path) else None


@contextmanager
def archiving(owner: Owner, shelf: str) -> Iterator[Callable[[str], None]]:
    """Gives the function that archives a session (``Changed``, ``Failure``); makes the shelf where it is missing.

    What was archived is on the disk when this ends.
    """
    with ExitStack() as stack:
        with _explained(shelf):
            os.makedirs(shelf, mode=0o700, exist_ok=True)
            source, target = (_opened(path, stack) for path in (owner.sessions, shelf))
        stack.callback(os.fsync, target)

        def archive(name: str) -> None:
            with _explained(name, f"{shelf}/{name}"):
                rename(source, name.encode(), target, name.encode(), RENAME_NOREPLACE)

        yield archive


def _opened(directory: str, stack: ExitStack) -> int:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, descriptor)
    return descriptor


@contextmanager
def deleting(owner: Owner) -> Iterator[Callable[[str], None]]:
    """Gives the function that deletes a session for good (``Changed``, ``Failure``)."""

    def delete(name: str) -> None:
        with _explained(name):
            os.setxattr(f"{owner.sessions}/{name}", "user.ctx.delete", name.encode())

    yield delete


@contextmanager
def _explained(what: str, target: str = "") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        match error.errno:
            case errno.EBUSY | errno.ENOENT:
                raise Changed(f"session became active or changed meanwhile, it stays: {what}", UNAVAILABLE) from None
            case errno.EEXIST:
                raise Failure(f"session archive already exists: {target}", UNAVAILABLE) from None
            case errno.EXDEV:
                raise Failure(f"session archive is on another filesystem: {target}", UNAVAILABLE) from None
            case errno.EACCES | errno.EPERM:
                raise Failure(f"{what}: {error.strerror}", DENIED) from None
        raise Failure(f"{what}: {error.strerror}", UNAVAILABLE) from None
