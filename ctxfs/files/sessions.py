"""Session directories: made, listed, archived, deleted, branched, compacted (spec 1.4, 1.9)."""

import errno
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyfuse3 import FUSEError

from backend.errors import Busy, InvalidValue, Missing
from backend.lines import parse_line
from backend.names import is_session_name
from backend.rows import ArchiveDirectory, Owner
from backend.strict_json import compact, strict_document
from ctxfs.files.appends import append_lines, writable_session
from ctxfs.files.context import root_key
from ctxfs.files.directories import PAGE, Caller, Found
from ctxfs.inodes import Kind, Node, inode_of
from ctxfs.privacy import Access, check_creator, check_space
from ctxfs.subjects import ArchiveSubject, ListedSubject, OwnerSubject

if TYPE_CHECKING:
    from ctxfs.core import Core

MAX_DIGITS = 18

log = logging.getLogger("ctxfs")


def find_session(core: "Core", subject: OwnerSubject, name: str, _uid: int) -> int | None:
    session = core.store.session(subject.owner.id, name)
    return None if session is None else core.subjects.changed(session).session.id


def each_session(core: "Core", subject: OwnerSubject, after: int, _uid: int) -> Iterable[Found]:
    """By id, a page at a time: costs what is taken of it."""
    owner, accesses = subject.owner, dict[int, Access]()
    while page := core.store.listing(owner.id, after, PAGE):
        for number, name, uid, updated_at in page:
            access = accesses.get(uid)
            if access is None:
                access = accesses[uid] = core.subjects.session_access(owner, uid)
            yield Found(number, name, number, ListedSubject(updated_at, access))
        after = page[-1][0]


def make_session(core: "Core", subject: OwnerSubject, name: str, caller: Caller) -> int:
    """``mkdir session/<name>``: state idle, empty log; the owner's first becomes its current one."""
    check_space(subject.access, caller.uid)
    uid = caller.uid if subject.access.shared else subject.access.uid
    session = core.store.create_session(subject.owner.id, name, uid)
    core.kernel.session_made(subject.owner.id, session)
    return session.id


def remove_session(core: "Core", subject: OwnerSubject, name: str, _caller: Caller) -> None:
    """``rmdir`` never removes history."""
    if core.store.session(subject.owner.id, name) is None:
        raise Missing(f"no session {name!r}")
    raise FUSEError(errno.ENOTEMPTY)


def archive_session(core: "Core", number: int, directory: int, name: str, uid: int) -> None:
    """``rename`` of a session into ``archived_sessions/[<dir>/…]<agent>/`` under its own name (spec 1.4, 4.4)."""
    session = core.subjects.session(number)
    target = core.subjects.archive(directory)
    assert session.session.owner is not None
    owner = core.subjects.owner(session.session.owner).owner
    check_creator(session.access, uid)
    if owner.space != target.directory.space or name != session.session.name or not _fits(core, owner, target):
        raise FUSEError(errno.EPERM)
    runtime = core.disk.closed_roots.place(root_key(core, session.session))
    removed = core.store.archive_session(number, directory)
    log.info("session %s of %s in %s archived by uid %d", name, owner.name, owner.space, uid)
    if runtime is not None:
        runtime.is_read_only = True
    core.kernel.removed(owner.id, number, removed)
    core.kernel.attributes_changed(inode_of(Node(Kind.ARCHIVE_DIRECTORY, directory)))


def _fits(core: "Core", owner: Owner, target: ArchiveSubject) -> bool:
    """Whether the directory is called after the owner: ``<agent>``, ``model/[<provider>/]<model>.d``."""
    wanted = [owner.name] if owner.kind == "agent" else ["model", *f"{owner.name}.d".split("/")]
    directory: ArchiveDirectory | None = target.directory
    for part in reversed(wanted):
        if directory is None or directory.name != part:
            return False
        parent = directory.parent
        directory = None if parent is None else core.store.archive_directory_by_id(parent)
    return True


async def delete_session(core: "Core", number: int, value: bytes, uid: int) -> None:
    """``user.ctx.delete`` = the session's own name; irreversible."""
    subject = core.subjects.session(number)
    check_creator(subject.access, uid)
    session = writable_session(core, number) if subject.access.archived else subject.session
    if value != session.name.encode():
        raise InvalidValue("user.ctx.delete takes the session's own name")
    assert session.owner is not None
    owner = core.subjects.owner(session.owner).owner
    if session.state == "active" or session.name in ("default", owner.current):
        raise Busy(f"session {session.name!r} is active, default or current")
    roots, key = core.disk.closed_roots, root_key(core, session)
    if core.store.context_directory(number) is None:
        roots.put_aside(key, number)
    try:
        removed = core.store.delete_session(number)
    except Exception:
        roots.put_back(key, number)
        raise
    log.info("session %s of %s in %s deleted by uid %d", session.name, owner.name, owner.space, uid)
    core.contexts.forget(number)
    core.kernel.removed(owner.id, number, removed)
    core.kernel.entry_changed(inode_of(Node(Kind.SESSIONS, owner.id)), session.name)
    await roots.delete(number)


def branch_session(core: "Core", number: int, value: bytes, uid: int) -> None:
    """``user.ctx.branch`` = ``NAME [AT]``: a child that shares the first AT entries (all by default)."""
    subject = core.subjects.session(number)
    check_creator(subject.access, uid)
    parts = _text(value).split(" ")
    if len(parts) > 2 or not is_session_name(parts[0]) or not all(part.isascii() for part in parts):
        raise InvalidValue("user.ctx.branch takes NAME [AT]")
    if len(parts) == 2 and not parts[1].isdigit():
        raise InvalidValue("user.ctx.branch: AT is a number of entries")
    digits = parts[1] if len(parts) == 2 else str(subject.session.n)
    if len(digits) > MAX_DIGITS or (at := int(digits)) > subject.session.n:
        raise FUSEError(errno.ERANGE)
    session = core.store.branch_session(number, at, parts[0])
    assert session.owner is not None
    core.kernel.session_made(session.owner, session)


async def compact_session(core: "Core", number: int, value: bytes, uid: int) -> None:
    """``user.ctx.compact`` = a cut's JSON: appended as a cut line."""
    check_creator(core.subjects.session(number).access, uid)
    session = writable_session(core, number)
    data = strict_document(value)
    if data.get("type", "cut") != "cut":
        raise InvalidValue("user.ctx.compact takes a cut")
    line = parse_line("events", compact(data | {"type": "cut"}), scope=session.scope)
    await append_lines(core, session, [line])


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidValue("the value is UTF-8") from None
