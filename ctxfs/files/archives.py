"""``archived_sessions/``: its directories and what is in them (spec 1.2, 4.4); ``ctxfs.files.sessions`` archives."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from backend.errors import Missing
from ctxfs.files.directories import PAGE, Caller, Found
from ctxfs.files.spaces import stored
from ctxfs.privacy import check_space
from ctxfs.subjects import ArchiveSubject, ListedSubject, SpaceSubject, archived_access

if TYPE_CHECKING:
    from ctxfs.core import Core


def find_archived(core: "Core", subject: ArchiveSubject, name: str, _uid: int) -> int | None:
    session = core.store.archived_session(subject.directory.id, name)
    return None if session is None else session.id


def each_archived(core: "Core", subject: ArchiveSubject, after: int, _uid: int) -> Iterable[Found]:
    while page := core.store.archived_sessions(subject.directory.id, after, PAGE):
        for session in page:
            listed = ListedSubject(session.updated_at, archived_access(subject, session.uid))
            yield Found(session.id, session.name, session.id, listed)
        after = page[-1].id


def _archive_directories(
    place: Callable[[Any], tuple[str, int | None]], prepare: Callable[["Core", Any], None]
) -> tuple[Any, Any, Any, Any]:
    """The functions of directories in one kind of directory: find, list, make, remove.

    ``place`` says in which space, and below which directory of the archive; ``prepare`` is called before one is made.
    """

    def find(core: "Core", subject: Any, name: str, _uid: int) -> int | None:
        directory = core.store.archive_directory(*place(subject), name)
        return None if directory is None else directory.id

    def each(core: "Core", subject: Any, after: int, _uid: int) -> Iterable[Found]:
        directories = sorted(core.store.archive_directories(*place(subject)), key=lambda directory: directory.id)
        return [Found(d.id, d.name, d.id) for d in directories if d.id > after]

    def make(core: "Core", subject: Any, name: str, caller: Caller) -> int:
        check_space(subject.access, caller.uid)
        prepare(core, subject)
        uid = caller.uid if subject.access.shared else subject.access.uid
        return core.store.add_archive_directory(*place(subject), name, uid).id

    def remove(core: "Core", subject: Any, name: str, caller: Caller) -> None:
        """While it is empty."""
        check_space(subject.access, caller.uid)
        directory = find(core, subject, name, caller.uid)
        if directory is None:
            raise Missing("no such archive directory")
        core.store.remove_archive_directory(directory)

    return find, each, make, remove


def _in_space(space: SpaceSubject) -> tuple[str, None]:
    return space.name, None


def _in_directory(subject: ArchiveSubject) -> tuple[str, int]:
    return subject.directory.space, subject.directory.id


DIRECTORIES = _archive_directories(_in_space, prepare=stored)
NESTED_DIRECTORIES = _archive_directories(_in_directory, prepare=lambda _core, _subject: None)
