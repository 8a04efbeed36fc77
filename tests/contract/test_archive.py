"""archived_sessions/ (``ArchiveFiles``, spec 4.4)."""

import msgspec
import pytest

from backend.errors import Busy, Exists, Missing, NotEmpty
from backend.lines import state_line
from tests.contract.harness import Harness, cd, raws, say


def test_directories_nest(at: Harness) -> None:
    top = at.archive("deep")
    inner = at.store.add_archive_directory("home/1000", top.id, "coder", 1000)
    assert at.store.archive_directory("home/1000", top.id, "coder") == inner
    assert at.store.archive_directory_by_id(inner.id) == inner
    assert list(at.store.archive_directories("home/1000", None)) == [at.store.archive_directory_by_id(top.id)]
    assert list(at.store.archive_directories("home/1000", top.id)) == [inner]
    with pytest.raises(Exists):
        at.store.add_archive_directory("home/1000", top.id, "coder", 1000)
    with pytest.raises(NotEmpty):
        at.store.remove_archive_directory(top.id)
    at.store.remove_archive_directory(inner.id)
    at.store.remove_archive_directory(top.id)
    assert at.store.archive_directory("home/1000", None, "deep") is None
    with pytest.raises(Missing):
        at.store.remove_archive_directory(top.id)


def test_an_archived_session_is_whole_and_out_of_the_live_tree(at: Harness) -> None:
    at.session("current")
    session = at.session("one")
    lines = [say("x", "assistant"), cd("/work")]
    before = at.append(session, *lines).session
    at.store.write_snapshot(session.id, "AGENTS.md", b"snapshot")
    directory = at.archive()
    assert at.store.archive_session(session.id, directory.id).listed
    archived = at.store.archived_session(directory.id, "one")
    assert archived == at.now(session) == msgspec.structs.replace(before, archive=directory.id)
    assert list(at.store.archived_sessions(directory.id)) == [archived]
    assert at.store.session(at.owner.id, "one") is None
    assert [row.name for row in at.store.sessions(at.owner.id)] == ["current"]
    assert at.listed() == ["current"]
    assert at.stream(session, "messages") == raws(lines[:1])
    assert at.store.latest(session.id) == b"x\n"
    assert at.store.read_snapshot(session.id, "AGENTS.md") == b"snapshot"


@pytest.mark.parametrize("why", ["active", "default", "current"])
def test_a_protected_session_stays(at: Harness, why: str) -> None:
    at.session("first")
    session = at.session("default" if why == "default" else "one")
    if why == "active":
        at.append(session, state_line("idle", "active"))
    if why == "current":
        at.store.set_current(at.owner.id, "one")
    before = at.now(session)
    with pytest.raises(Busy):
        at.store.archive_session(session.id, at.archive().id)
    assert at.now(session) == before
    assert session.name in at.listed()


def test_a_taken_name_is_never_overwritten(at: Harness) -> None:
    at.session("current")
    directory = at.archive()
    first = at.session("one")
    at.append(first, say("first"))
    at.store.archive_session(first.id, directory.id)
    second = at.session("one")
    with pytest.raises(Exists):
        at.store.archive_session(second.id, directory.id)
    assert at.now(second).archive is None
    assert at.stream(first, "messages") == raws([say("first")])
    other = at.store.add_archive_directory("home/1000", directory.id, "two", 1000)
    third = at.session("two")
    with pytest.raises(Exists):
        at.store.archive_session(third.id, directory.id)
    at.store.archive_session(third.id, other.id)


def test_a_name_is_free_after_archiving(at: Harness) -> None:
    at.session("current")
    first = at.session("one")
    at.append(first, say("old"))
    at.store.archive_session(first.id, at.archive().id)
    second = at.session("one")
    at.append(second, say("new"))
    assert second.id != first.id
    assert at.stream(first, "messages") == raws([say("old")])
    assert at.stream(second, "messages") == raws([say("new")])


def test_a_directory_with_a_session_stays_until_it_is_deleted(at: Harness) -> None:
    at.session("current")
    session = at.session("one")
    directory = at.archive()
    at.store.archive_session(session.id, directory.id)
    with pytest.raises(NotEmpty):
        at.store.remove_archive_directory(directory.id)
    assert not at.store.delete_session(session.id).listed
    assert at.store.archived_session(directory.id, "one") is None
    at.store.remove_archive_directory(directory.id)


def test_archived_sessions_come_in_pages_by_id(at: Harness) -> None:
    at.session("current")
    directory = at.archive()
    for n in reversed(range(7)):
        at.store.archive_session(at.session(f"s{n}").id, directory.id)
    seen: list[str] = []
    after = 0
    while page := at.store.archived_sessions(directory.id, after, 3):
        assert [row.id for row in page] == sorted(row.id for row in page)
        seen += [row.name for row in page]
        after = page[-1].id
    assert sorted(seen) == [f"s{n}" for n in range(7)]


def test_what_is_not_there_is_missing(at: Harness) -> None:
    at.session("current")
    session = at.session("one")
    for call in (
        lambda: at.store.archive_session(session.id, 999_999),
        lambda: at.store.archive_session(999_999, at.archive().id),
        lambda: at.store.add_archive_directory("home/1000", 999_999, "x", 1000),
    ):
        with pytest.raises(Missing):
            call()
    assert at.now(session).archive is None
