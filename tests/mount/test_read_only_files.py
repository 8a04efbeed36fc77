"""Derived and archived files are nobody's to write (spec 1.4)."""

import errno
import os
from pathlib import Path

import pytest

from tests.mount.acting import message, new_session, opened, refused, target, write_once
from tests.mount.scenery import SESSION_FILES
from tests.people import ALICE, ROOT, Person

DERIVED = ["latest.md", "created_at", "updated_at", "index/list", "index/by-cwd/*"]
WRITING = [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC, os.O_RDONLY | os.O_TRUNC]


def derived(session: Path, name: str) -> Path:
    path = target(session, name)
    if path.name == "*":
        (session / "cwd").write_text(f"/{session.name}\n")
        return next(each for each in path.parent.iterdir() if each.read_text() == f"{session.name}\n")
    return path


@pytest.mark.parametrize("person", [ROOT, ALICE])
@pytest.mark.parametrize("name", DERIVED)
def test_a_derived_file_cannot_be_opened_for_writing(ctx: Path, person: Person, name: str) -> None:
    session = new_session(ctx, person)
    path = person.does(derived, session, name)
    content = person.does(path.read_bytes)
    for writer in (ROOT, person):
        for flags in WRITING:
            assert writer.outcome(os.open, path, flags) == "EACCES"
        assert writer.outcome(os.open, path, os.O_WRONLY | os.O_CREAT) == "EACCES"
        assert writer.outcome(os.truncate, path, 0) == "EACCES"
        assert writer.outcome(os.unlink, path) == "EPERM"
    assert person.does(path.read_bytes) == content


def archived(session: Path) -> Path:
    return Path(session.rename(place_in_the_archive(session)))


def place_in_the_archive(session: Path) -> Path:
    """Where it can be renamed to, for it is not the current one any more."""
    directory = session.parents[3] / "archived_sessions" / session.parents[1].name
    directory.mkdir(exist_ok=True)
    new_session(session.parents[5], agent=session.parents[1].name)
    (session.parent / "index/current").write_text(f"{next_other(session)}\n")
    return directory / session.name


def next_other(session: Path) -> str:
    return next(name for name in os.listdir(session.parent) if name not in (session.name, "index"))


ALL_FILES = (*SESSION_FILES, "AGENTS.md", "SKILLS.md")


def test_archived_files_are_read_only(ctx: Path) -> None:
    session = new_session(ctx)
    for name in ("AGENTS.md", "SKILLS.md"):
        (session / name).write_text("text\n")
    where = archived(session)
    for name in ALL_FILES:
        for flags in WRITING:
            with refused(errno.EROFS):
                os.open(where / name, flags)
        for change in (lambda path: os.truncate(path, 0), os.unlink, lambda path: os.rename(path, f"{path}~")):
            with refused(errno.EROFS):
                change(where / name)
    with refused(errno.EROFS):
        os.open(where / "temporary", os.O_WRONLY | os.O_CREAT)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("messages.jsonl", message()),
        ("events.jsonl", b'{"type":"cwd","cwd":"/x"}\n'),
        ("state", b"done\n"),
        ("cwd", b"/x\n"),
        ("meta.json", b'{"client":"test","scope":"private"}\n'),
        ("AGENTS.md", b"new\n"),
        ("context/pack.json", b"new\n"),
    ],
)
def test_a_handle_from_before_the_archiving_answers_erofs(ctx: Path, name: str, data: bytes) -> None:
    session = new_session(ctx)
    with opened(session / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT):
        pass
    with opened(session / name, os.O_WRONLY | os.O_APPEND) as descriptor:
        where = archived(session)
        content = (where / name).read_bytes()
        with refused(errno.EROFS):
            os.write(descriptor, data)
    assert (where / name).read_bytes() == content


def test_what_was_written_of_a_snapshot_before_the_archiving_is_erofs_at_close(ctx: Path) -> None:
    session = new_session(ctx)
    (session / "AGENTS.md").write_text("old\n")
    where = place_in_the_archive(session)
    descriptor = os.open(session / "AGENTS.md", os.O_WRONLY)
    os.write(descriptor, b"new\n")
    session.rename(where)
    with refused(errno.EROFS):
        os.ftruncate(descriptor, 0)
    with refused(errno.EROFS):
        os.fsync(descriptor)
    with refused(errno.EROFS):
        os.close(descriptor)
    assert (where / "AGENTS.md").read_text() == "old\n"


def test_a_snapshot_that_was_being_made_is_not_in_the_archive(ctx: Path) -> None:
    session = new_session(ctx)
    where = place_in_the_archive(session)
    descriptor = os.open(session / "AGENTS.md", os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, b"new\n")
    session.rename(where)
    assert "AGENTS.md" not in os.listdir(where)
    assert not (where / "AGENTS.md").exists()
    with refused(errno.EROFS):
        os.close(descriptor)


def test_no_name_in_an_archived_context_changes(ctx: Path) -> None:
    session = new_session(ctx)
    write_once(session / "messages.jsonl", message())
    (session / "context/pack.json").write_text("{}")
    context = archived(session) / "context"
    names = os.listdir(context)
    for name in names:
        for new in ("renamed", "request.json", "../renamed"):
            with refused(errno.EROFS):
                (context / name).rename(context / new)
        with refused(errno.EROFS):
            (context / name).unlink()
    assert os.listdir(context) == names


def test_root_of_a_user_namespace_gets_the_same_refusals(ctx: Path) -> None:
    session = new_session(ctx, ALICE)
    root = Person(ALICE.uid, ALICE.gid, maps_to_root=True)
    with_line = ("O_TRUNC", os.O_WRONLY | os.O_TRUNC)
    root.does(write_once, session / "messages.jsonl", message())
    assert root.outcome(os.open, session / "messages.jsonl", with_line[1]) == "EPERM"
    assert root.outcome(write_once, session / "messages.jsonl", b"garbage\n") == "EINVAL"
    assert root.outcome(write_once, session / "state", b"running\n") == "EINVAL"
    assert root.outcome(os.open, session / "latest.md", os.O_WRONLY) == "EACCES"
    assert root.outcome(os.unlink, session / "messages.jsonl") == "EPERM"
    other = new_session(ctx, Person(4242, 4242))
    assert root.outcome(os.listdir, other) == "EACCES"
