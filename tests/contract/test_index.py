"""The files of index/: list, current, by-cwd, by-hash, by-uuid (``IndexFiles``, spec 1.2)."""

import pytest

from backend.errors import Missing
from backend.names import cwd_key
from tests.contract.harness import Harness, cd, say


def test_the_list_has_the_last_updated_first(at: Harness) -> None:
    one, two, three = (at.session(name) for name in ("one", "two", "three"))
    assert at.listed() == ["three", "two", "one"]
    assert at.append(one, say("x")).listed
    assert not at.append(one, say("y")).listed, "it is first already"
    assert at.append(two, say("x")).listed
    assert at.listed() == ["two", "one", "three"]
    at.store.delete_session(two.id)
    assert at.listed() == ["one", "three"]
    assert three.name in at.listed()


def test_the_list_ignores_clock_jumps_and_stamps(at: Harness) -> None:
    sessions = [at.session(f"s{n}") for n in range(4)]
    at.append(sessions[0], say("from the future"), time=99_999_999_999_999)
    for hours, session in zip((5, -5, 0), sessions[1:], strict=True):
        at.clock.pass_seconds(hours * 3600)
        at.append(session, say("x"))
    assert at.listed() == ["s3", "s2", "s1", "s0"]


def test_the_list_changes_its_mtime_with_its_content_only(at: Harness) -> None:
    at.session("one")
    two = at.session("two")
    before = at.owner_now()
    at.append(two, say("x"))
    assert at.owner_now() == before
    at.append(at.session("three"), say("x"))
    assert at.owner_now().list_mtime > before.list_mtime


def test_creating_and_removing_changes_the_directory(at: Harness) -> None:
    mtimes = [at.owner_now().mtime]
    at.session("current")
    mtimes.append(at.owner_now().mtime)
    session = at.session("one")
    mtimes.append(at.owner_now().mtime)
    at.store.archive_session(session.id, at.archive().id)
    mtimes.append(at.owner_now().mtime)
    at.store.delete_session(at.session("two").id)
    mtimes.append(at.owner_now().mtime)
    assert mtimes == sorted(set(mtimes))


def test_the_first_session_becomes_current(at: Harness) -> None:
    at.session("one")
    first = at.owner_now()
    at.session("two")
    assert at.owner_now().current == first.current == "one"
    assert at.owner_now().current_mtime == first.current_mtime


def test_current_is_set_to_a_live_session(at: Harness) -> None:
    at.session("one")
    at.session("two")
    before = at.owner_now()
    changed = at.store.set_current(at.owner.id, "two")
    assert at.owner_now() == changed
    assert changed.current == "two"
    assert changed.current_mtime > before.current_mtime
    assert at.store.set_current(at.owner.id, "two") == changed, "what is set already moves no mtime"
    with pytest.raises(Missing):
        at.store.set_current(at.owner.id, "three")
    assert at.owner_now() == changed


def test_without_the_current_session_the_next_created_becomes_it(at: Harness) -> None:
    one = at.session("one")
    at.session("two")
    at.store.delete_session(one.id)
    assert at.owner_now().current is None
    at.session("three")
    assert at.owner_now().current == "three"


def test_by_cwd_names_the_last_that_recorded_it(at: Harness) -> None:
    one, two = at.session("one"), at.session("two")
    key = cwd_key("/work")
    assert at.mapped("by-cwd") == {}
    assert at.append(one, cd("/work")).keys_new == (key,)
    first = at.store.mapping(at.owner.id, "by-cwd", key)
    assert first is not None
    assert at.append(two, cd("/work")).keys_changed == (key,)
    assert at.mapped("by-cwd") == {key: "two"}
    second = at.store.mapping(at.owner.id, "by-cwd", key)
    assert second is not None
    assert (second.id, second.mtime > first.mtime) == (first.id, True)
    assert at.append(two, cd("/work")).keys_changed == (), "it is the holder already"
    assert at.append(one, cd("/work")).keys_changed == (key,)
    assert at.mapped("by-cwd") == {key: "one"}


def test_a_session_that_leaves_a_cwd_uncovers_the_one_before(at: Harness) -> None:
    one, two = at.session("one"), at.session("two")
    work, other = cwd_key("/work"), cwd_key("/other")
    at.append(one, cd("/work"))
    at.append(two, cd("/work"))
    moved = at.append(two, cd("/other"))
    assert (moved.keys_new, moved.keys_changed, moved.keys_gone) == ((other,), (work,), ())
    assert at.mapped("by-cwd") == {work: "one", other: "two"}
    moved = at.append(one, cd("/other"))
    assert (moved.keys_new, moved.keys_changed, moved.keys_gone) == ((), (other,), (work,))
    assert at.mapped("by-cwd") == {other: "one"}


def test_a_cwd_that_is_left_and_taken_again_within_an_append_changes_nothing(at: Harness) -> None:
    one = at.session("one")
    at.append(one, cd("/work"))
    appended = at.append(one, cd("/other"), cd("/work"))
    assert (appended.keys_new, appended.keys_changed, appended.keys_gone) == ((), (), ())
    assert at.mapped("by-cwd") == {cwd_key("/work"): "one"}


def test_removing_a_session_uncovers_the_next_for_its_cwd(at: Harness) -> None:
    at.session("current")
    one, two, three = (at.session(name) for name in ("one", "two", "three"))
    key = cwd_key("/work")
    for session in (one, two, three):
        at.append(session, cd("/work"))
    assert at.store.archive_session(three.id, at.archive().id).keys_changed == (("by-cwd", key),)
    assert at.mapped("by-cwd") == {key: "two"}
    assert at.store.delete_session(two.id).keys_changed == (("by-cwd", key),)
    assert at.mapped("by-cwd") == {key: "one"}
    assert at.store.delete_session(one.id).keys_gone == (("by-cwd", key),)
    assert at.mapped("by-cwd") == {}
    assert at.store.mapping(at.owner.id, "by-cwd", key) is None


def test_by_cwd_is_the_owner_s_own(at: Harness) -> None:
    other = at.store.add_owner("home/1000", "agent", "other", 1000, 1000)
    at.append(at.session("one"), cd("/work"))
    at.append(at.session("one", other), cd("/work"))
    assert at.mapped("by-cwd") == {cwd_key("/work"): "one"}
    assert len(at.store.mappings(other.id, "by-cwd")) == 1


@pytest.mark.parametrize(("kind", "key"), [("by-hash", "abc"), ("by-uuid", "0b87ef5a-6cd5-4c9a-8b65-0d3a2d6a9a40")])
def test_an_external_key_maps_to_a_session(at: Harness, kind: str, key: str) -> None:
    at.session("one")
    at.session("two")
    first = at.store.set_mapping(at.owner.id, kind, key, "one")  # type: ignore[arg-type]
    assert at.store.mapping(at.owner.id, kind, key) == at.store.mapping_by_id(first.id) == first  # type: ignore[arg-type]
    assert at.store.set_mapping(at.owner.id, kind, key, "one") == first  # type: ignore[arg-type]
    second = at.store.set_mapping(at.owner.id, kind, key, "two")  # type: ignore[arg-type]
    assert (second.id, second.session, second.mtime > first.mtime) == (first.id, "two", True)
    with pytest.raises(Missing):
        at.store.set_mapping(at.owner.id, kind, key, "three")  # type: ignore[arg-type]
    at.store.remove_mapping(first.id)
    assert at.store.mapping_by_id(first.id) is None
    assert at.mapped(kind) == {}
    with pytest.raises(Missing):
        at.store.remove_mapping(first.id)


def test_several_keys_map_to_their_sessions_or_none_does(at: Harness) -> None:
    at.session("one")
    at.session("two")
    at.store.set_mapping(at.owner.id, "by-hash", "a", "two")
    with pytest.raises(Missing):
        at.store.set_mappings(at.owner.id, "by-hash", {"a": "one", "b": "three"})
    assert at.mapped("by-hash") == {"a": "two"}
    at.store.set_mappings(at.owner.id, "by-hash", {"a": "one", "b": "two"})
    assert at.mapped("by-hash") == {"a": "one", "b": "two"}


def test_removing_a_session_removes_exactly_its_references(at: Harness) -> None:
    at.session("current")
    one = at.session("one")
    for key, name in (("a", "one"), ("b", "current"), ("c", "one")):
        at.store.set_mapping(at.owner.id, "by-hash", key, name)
    uuid = "0b87ef5a-6cd5-4c9a-8b65-0d3a2d6a9a40"
    at.store.set_mapping(at.owner.id, "by-uuid", uuid, "one")
    removed = at.store.archive_session(one.id, at.archive().id)
    assert set(removed.keys_gone) == {("by-hash", "a"), ("by-hash", "c"), ("by-uuid", uuid)}
    assert (at.mapped("by-hash"), at.mapped("by-uuid")) == ({"b": "current"}, {})


def test_mappings_come_in_pages_by_id(at: Harness) -> None:
    at.session("one")
    for n in range(10):
        at.store.set_mapping(at.owner.id, "by-hash", f"k{9 - n}", "one")
    seen: list[str] = []
    after = 0
    while page := at.store.mappings(at.owner.id, "by-hash", after, 3):
        assert [row.id for row in page] == sorted(row.id for row in page)
        seen += [row.key for row in page]
        after = page[-1].id
        at.store.remove_mapping(page[0].id)
    assert sorted(seen) == [f"k{n}" for n in range(10)]
