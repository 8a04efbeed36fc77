"""Extended attributes of sessions (spec 1.9): what can be read, what is listed, and the commands set through them."""

import errno
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pyfuse3 import ENOATTR, FUSEError

from backend.entries import FORMAT_VERSION
from backend.rows import Session
from ctxfs.content import Content
from ctxfs.files import sessions
from ctxfs.inodes import Kind
from ctxfs.subjects import SessionSubject
from ctxfs.tree import Entry

if TYPE_CHECKING:
    from ctxfs.core import Core

PREFIX = "user.ctx."
MAX_COMMAND = 64 << 10
LISTED = ("n", "uuid", "scope")

SESSION: dict[str, Callable[[Session], object]] = {
    "n": lambda session: session.n,
    "uuid": lambda session: session.session_id,
    "parent": lambda session: session.parent,
    "at": lambda session: session.at,
    "scope": lambda session: session.scope,
    "format": lambda _: FORMAT_VERSION,
}


async def _delete(core: "Core", number: int, value: bytes, uid: int) -> None:
    await sessions.delete_session(core, number, value, uid)


async def _branch(core: "Core", number: int, value: bytes, uid: int) -> None:
    sessions.branch_session(core, number, value, uid)


COMMANDS: dict[str, Callable[["Core", int, bytes, int], Awaitable[None]]] = {
    "delete": _delete,
    "branch": _branch,
    "compact": sessions.compact_session,
}


def get(content: Content, entry: Entry, name: str) -> bytes:
    """A value; ``ENODATA`` where the file has none of that name, ``EOPNOTSUPP`` outside ``user.``."""
    if not name.startswith("user."):
        raise FUSEError(errno.EOPNOTSUPP)
    value: object = None
    key = name.removeprefix(PREFIX)
    if name.startswith(PREFIX) and isinstance(entry.subject, SessionSubject):
        if entry.node.kind is Kind.SESSION:
            value = SESSION[key](entry.subject.session) if key in SESSION else None
        elif not entry.row.is_directory:
            value = _file_value(content, entry, key)
    if value is None:
        raise FUSEError(ENOATTR)
    return str(value).encode()


def _file_value(content: Content, entry: Entry, key: str) -> object:
    if key == "kind":
        return entry.row.name
    if key == "token_estimate":
        return (content.size(entry) + 3) // 4
    return None


def names(entry: Entry) -> list[bytes]:
    """Those that are listed: of session directories only."""
    if entry.node.kind is not Kind.SESSION:
        return []
    return [f"{PREFIX}{key}".encode() for key in LISTED]


async def command(core: "Core", entry: Entry, name: str, value: bytes, uid: int) -> None:
    """A command, by setting its attribute on a live session's directory (its owner and uid 0 only)."""
    run = COMMANDS.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
    if run is None or entry.node.kind is not Kind.SESSION:
        raise FUSEError(errno.EPERM if name.startswith("user.") else errno.EOPNOTSUPP)
    if entry.access.archived:
        raise FUSEError(errno.EROFS)
    if len(value) > MAX_COMMAND:
        raise FUSEError(errno.E2BIG)
    await run(core, entry.node.id, value, uid)
