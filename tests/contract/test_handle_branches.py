"""Branches, made and written through handles (spec 2.7)."""

import re
from typing import Any

import pytest

from backend.entries import NewCut, SessionHead
from backend.errors import (
    BranchOutOfRange,
    SessionAlreadyExistsError,
)
from backend.sessions import Branched, Sessions
from tests.contract.handles import CUT, opened, said, says, texts
from tests.contract.harness import Harness, wait


@pytest.mark.parametrize("length", [0, 2, 4])
def test_a_branch_holds_its_part_and_what_its_parent_said_of_itself(sessions: Sessions, length: int) -> None:
    parent = wait(lambda: sessions.create("p", delegation_depth=2, title="t", origin=[1]))
    wait(parent.write, [*says("0", "1"), NewCut({**CUT, "summary": [said("S")]}), *says("3")])
    events: list[Branched] = []
    stop = sessions.on("chatluna/session-branch", events.append)
    child = wait(parent.branch, length)
    assert re.fullmatch(r"p:branch:[0-9a-f]{8}", child.id)
    header = child.header
    assert (header.parent, header.at, header.delegation_depth, header.title, header.origin) == (
        "p",
        length,
        2,
        "t",
        [1],
    )
    assert (list(child.entries()), child.length) == (list(parent.entries()[:length]), length)
    assert texts(child.messages()) == {0: [], 2: ["0", "1"], 4: ["S", "3"]}[length]
    assert events == [{"parent": "p", "session": child.id, "at": length}]
    stop()
    wait(sessions.branch, "p", 0)
    wait(lambda: sessions.create(parent="p"))
    assert len(events) == 1


def test_what_a_branch_is_given_it_does_not_inherit(sessions: Sessions) -> None:
    wait(lambda: sessions.create("p", delegation_depth=2, title="t", origin=[1]))
    options: dict[str, Any] = {"id": "c", "delegation_depth": 0, "title": "", "origin": False}
    child = wait(lambda: sessions.branch("p", 0, **options))
    header = child.header
    assert (child.id, header.delegation_depth, header.title, header.origin) == ("c", 0, "", False)
    with pytest.raises(SessionAlreadyExistsError):
        wait(lambda: sessions.branch("p", 0, id="c"))


def test_create_with_a_parent_copies_all_of_it_unless_told(sessions: Sessions) -> None:
    opened(sessions, "p", "0", "1", "2")
    assert wait(lambda: sessions.create("all", parent="p")).length == 3
    child = wait(lambda: sessions.create(parent="p", at=1))
    assert (child.length, child.header.at, len(child.id)) == (1, 1, 36)


@pytest.mark.parametrize("point", [-1, 3, True, 1.0, "1", None])
def test_a_branch_out_of_range(sessions: Sessions, point: Any) -> None:
    parent = opened(sessions, "p", "0", "1")
    for branch in (parent.branch, lambda at: sessions.branch("p", at)):
        with pytest.raises(BranchOutOfRange):
            wait(branch, point)
    wait(wait(sessions.open, "p").write, says("2"))
    with pytest.raises(BranchOutOfRange):
        wait(parent.branch, 3)
    assert len(wait(sessions.list)) == 1


def test_parent_and_child_grow_apart(sessions: Sessions) -> None:
    parent = opened(sessions, "p", "one", "two")
    child = wait(parent.branch, 2)
    wait(parent.compact, {**CUT, "summary": [said("S")]})
    wait(child.write, says("three"))
    wait(parent.write, says("four"))
    assert texts(parent.messages()) == ["S", "four"]
    for handle in (child, wait(sessions.open, child.id)):
        assert texts(handle.messages()) == ["one", "two", "three"]
        assert [entry.n for entry in handle.entries()] == [0, 1, 2]


def test_deleting_the_parent_leaves_the_children_byte_for_byte(at: Harness, sessions: Sessions) -> None:
    parent = opened(sessions, "p", "one", "two", "three")
    child = wait(parent.branch, 2)
    wait(child.write, says("own"))
    grandchild = wait(child.branch, 3)
    rows = [at.store.find(handle.id) for handle in (child, grandchild)]
    before = [at.store.read_stream(row.id, "messages", 0, 10_000) for row in rows if row]
    wait(sessions.delete, "p")
    assert [at.store.read_stream(row.id, "messages", 0, 10_000) for row in rows if row] == before
    assert texts(grandchild.messages()) == ["one", "two", "own"]
    assert wait(sessions.head, child.id) == SessionHead(child.header, 3)
