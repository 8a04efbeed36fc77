"""Homes, shared places, owners, definitions (``SpaceStore``, ``DefinitionFiles``)."""

import pytest

from backend.errors import Exists, Missing, NotEmpty
from backend.names import cwd_key
from tests.contract.harness import START, Harness


def test_a_space_is_found_by_name_and_listed_by_prefix(at: Harness) -> None:
    team = at.store.add_space("shared/team", 0, 500, 0o2770)
    assert at.store.space("shared/team") == team
    assert (team.uid, team.gid, team.mode) == (0, 500, 0o2770)
    assert at.store.space("shared/other") is None
    assert [space.name for space in at.store.spaces("home/")] == ["home/1000"]
    assert [space.name for space in at.store.spaces("shared/")] == ["shared/team"]


def test_a_space_can_be_stored_once(at: Harness) -> None:
    with pytest.raises(Exists):
        at.store.add_space("home/1000", 1000, 1000, 0o700)


def test_a_space_can_change_hands(at: Harness) -> None:
    changed = at.store.change_space("home/1000", 7, 8, 0o2750)
    assert (changed.id, changed.uid, changed.gid, changed.mode) == (at.home.id, 7, 8, 0o2750)
    assert at.store.space("home/1000") == changed


def test_only_an_empty_space_is_removed(at: Harness) -> None:
    with pytest.raises(NotEmpty):
        at.store.remove_space("home/1000")
    at.store.remove_owner(at.owner.id)
    directory = at.archive()
    with pytest.raises(NotEmpty):
        at.store.remove_space("home/1000")
    at.store.remove_archive_directory(directory.id)
    at.store.remove_space("home/1000")
    assert at.store.space("home/1000") is None


def test_what_is_not_there_is_missing(at: Harness) -> None:
    for call in (
        lambda: at.store.change_space("home/1", 1, 1, 0o700),
        lambda: at.store.remove_space("home/1"),
        lambda: at.store.add_owner("home/1", "agent", "coder", 1, 1),
        lambda: at.store.remove_owner(999_999),
        lambda: at.store.remove_definition(999_999),
    ):
        with pytest.raises(Missing):
            call()


def test_agents_and_models_of_one_name_are_two_owners(at: Harness) -> None:
    model = at.store.add_owner("home/1000", "model", "debug/echo", 1000, 1000)
    also = at.store.add_owner("home/1000", "model", "coder", 1000, 1000)
    assert at.store.owner("home/1000", "agent", "coder") == at.owner
    assert at.store.owner("home/1000", "model", "coder") == also
    assert at.store.owner_by_id(model.id) == model
    assert {owner.name for owner in at.store.owners("home/1000", "model")} == {"debug/echo", "coder"}
    with pytest.raises(Exists):
        at.store.add_owner("home/1000", "agent", "coder", 1000, 1000)


def test_a_new_owner_has_an_empty_list_and_no_current_session(at: Harness) -> None:
    assert (at.owner.current, at.owner.list_size) == (None, 0)
    assert at.listed() == []
    assert min(at.owner.mtime, at.owner.list_mtime, at.owner.current_mtime) >= START


def test_an_owner_with_a_session_stays(at: Harness) -> None:
    session = at.session("one")
    with pytest.raises(NotEmpty):
        at.store.remove_owner(at.owner.id)
    at.store.delete_session(session.id)
    at.store.remove_owner(at.owner.id)
    assert at.store.owner("home/1000", "agent", "coder") is None
    assert at.store.owner_by_id(at.owner.id) is None


def test_a_definition_holds_bytes_by_file(at: Harness) -> None:
    agent = at.store.add_definition("agent", "coder")
    assert at.store.definition_value(agent, "exec") is None
    first = at.store.set_definition_value(agent, "exec", b'["a"]\n')
    assert at.store.definition_value(agent, "exec") == (b'["a"]\n', first)
    second = at.store.set_definition_value(agent, "exec", b"\xff\0")
    assert second > first, "an mtime rises with every change, though the clock stands still"
    assert at.store.definition_value(agent, "exec") == (b"\xff\0", second)
    assert at.store.definition_value(agent, "root") is None


def test_definitions_are_listed_by_kind_and_end_with_their_values(at: Harness) -> None:
    agent = at.store.add_definition("agent", "coder")
    model = at.store.add_definition("model", "debug/echo")
    with pytest.raises(Exists):
        at.store.add_definition("agent", "coder")
    assert [row[:2] for row in at.store.definitions("agent")] == [(agent, "coder")]
    assert [row[:2] for row in at.store.definitions("model")] == [(model, "debug/echo")]
    at.store.set_definition_value(agent, "cwd", b"/\n")
    at.store.remove_definition(agent)
    again = at.store.add_definition("agent", "coder")
    assert again != agent
    assert at.store.definition_value(again, "cwd") is None


def test_ids_are_positive_and_never_used_again(at: Harness) -> None:
    seen = {at.owner.id}
    for _ in range(3):
        owner = at.store.add_owner("home/1000", "agent", "other", 1000, 1000)
        assert owner.id > 0
        assert owner.id not in seen
        seen.add(owner.id)
        at.store.remove_owner(owner.id)


def test_status_counts_live_sessions_and_spaces(at: Harness) -> None:
    at.session("one")
    two = at.session("two")
    at.store.archive_session(two.id, at.archive().id)
    status = at.store.status()
    assert (status.format, status.sessions, status.spaces, status.failure) == (at.kind, 1, 1, None)
    assert status.bytes >= 0


def test_the_key_of_a_cwd_is_the_known_one() -> None:
    assert cwd_key("/workspace") == "cwd-990e10b3394addcf"
