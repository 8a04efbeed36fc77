"""Branches hold their parent's prefix by reference (spec 2.8)."""

import re

import pytest

from backend.errors import BranchOutOfRange, SessionAlreadyExistsError, SessionNotFoundError
from backend.lines import state_line
from backend.names import cwd_key
from backend.rows import Line, Session
from tests.contract.harness import Harness, cd, event, header, raws, say, wait

LINES = [
    say("one"),
    say("two", "assistant"),
    cd("/work"),
    event("delta", run="r", text="x"),
    state_line("idle", "done"),
    say("three", "assistant"),
]
FACTS = ("n", "messages_size", "events_size", "latest_size", "latest_n", "state", "cwd", "meta", "updated_at")


def streams(at: Harness, session: Session) -> tuple[bytes, bytes]:
    return at.stream(session, "messages"), at.stream(session, "events")


def expected(lines: list[Line]) -> tuple[bytes, bytes]:
    return (
        raws([line for line in lines if line.stream == "messages"]),
        raws([line for line in lines if line.stream == "events"]),
    )


@pytest.mark.parametrize("batches", [[6], [1, 2, 3], [1] * 6])
@pytest.mark.parametrize("length", range(7))
def test_a_branch_is_the_session_as_it_was(at: Harness, batches: list[int], length: int) -> None:
    parent, plain = at.session("parent"), at.session("plain")
    start = 0
    for size in batches:
        at.append(parent, *LINES[start : start + size], time=list(range(start, start + size)))
        start += size
    if length:
        at.append(plain, *LINES[:length], time=list(range(length)))
    child = at.store.branch_session(parent.id, length, "child")
    assert (child.parent, child.at, child.owner) == (parent.session_id, length, at.owner.id)
    for fact in FACTS[: -1 if length == 0 else None]:
        assert getattr(child, fact) == getattr(at.now(plain), fact), fact
    assert streams(at, child) == expected(LINES[:length])
    assert at.store.latest(child.id) == at.store.latest(plain.id)
    assert at.store.rows(child.id) == at.store.rows(parent.id, 0, length)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 128, 193, 239])
def test_a_branch_within_a_long_append_is_the_session_as_it_was(at: Harness, length: int) -> None:
    parent, plain = at.session("parent"), at.session("plain")
    lines = [*LINES, *[say("x")] * 34] * 6
    at.append(parent, *lines, time=list(range(240)))
    at.append(plain, *lines[:length], time=list(range(length)))
    child = at.store.branch_session(parent.id, length, "child")
    assert {fact: getattr(child, fact) for fact in FACTS} == {fact: getattr(at.now(plain), fact) for fact in FACTS}
    assert streams(at, child) == expected(lines[:length])


def test_parent_and_child_grow_independently(at: Harness) -> None:
    parent = at.session("parent")
    at.append(parent, *LINES)
    child = at.store.branch_session(parent.id, 3, "child")
    at.append(parent, say("only the parent"))
    at.append(child, say("only the child", "assistant"), cd("/child"))
    assert streams(at, parent) == expected([*LINES, say("only the parent")])
    assert streams(at, child) == expected([*LINES[:3], say("only the child", "assistant"), cd("/child")])
    assert [row.n for row in at.store.rows(child.id)] == [0, 1, 2, 3, 4]
    assert at.store.latest(child.id) == b"only the child\n"
    assert at.store.latest(parent.id) == b"three\n"


def test_every_range_of_a_branch_is_read(at: Harness) -> None:
    parent = at.session("parent")
    at.append(parent, *LINES)
    child = at.store.branch_session(parent.id, 3, "child")
    at.append(child, say("é" * 50), say("x"))
    grandchild = at.store.branch_session(child.id, 4, "grandchild")
    at.append(grandchild, say("last"))
    whole = at.stream(grandchild, "messages")
    assert whole == raws([*LINES[:2], say("é" * 50), say("last")])
    for offset in range(0, len(whole) + 2, 7):
        for size in (1, 20, 100, 1000):
            assert at.store.read_stream(grandchild.id, "messages", offset, size) == whole[offset : offset + size]
    for start in range(6):
        assert [row.n for row in at.store.rows(grandchild.id, start, 2)] == list(range(start, min(start + 2, 5)))


def test_a_child_of_an_archived_parent_stays_as_it_is(at: Harness) -> None:
    at.session("current")
    parent = at.session("parent")
    at.append(parent, *LINES)
    child = at.store.branch_session(parent.id, 5, "child")
    at.append(child, say("own"))
    before = at.now(child), streams(at, child), at.store.rows(child.id)
    at.store.archive_session(parent.id, at.archive().id)
    assert (at.now(child), streams(at, child), at.store.rows(child.id)) == before


def test_deleting_the_parent_leaves_the_children_whole(at: Harness) -> None:
    at.session("current")
    parent = at.session("parent")
    at.append(parent, *LINES)
    child = at.store.branch_session(parent.id, 5, "child")
    at.append(child, say("own"))
    grandchild = at.store.branch_session(child.id, 2, "grandchild")
    at.store.delete_session(parent.id)
    at.store.delete_session(child.id)
    assert streams(at, grandchild) == expected(LINES[:2])
    at.append(grandchild, say("more"))
    assert streams(at, grandchild) == expected([*LINES[:2], say("more")])
    again = at.store.branch_session(grandchild.id, 1, "again")
    assert streams(at, again) == expected(LINES[:1])


def test_a_branch_of_an_archived_session_is_live(at: Harness) -> None:
    at.session("current")
    parent = at.session("parent")
    at.append(parent, *LINES)
    at.store.archive_session(parent.id, at.archive().id)
    child = at.store.branch_session(parent.id, 2, "child")
    assert child.archive is None
    assert at.listed() == ["child", "current"]


def test_a_branch_gets_a_derived_id_unless_given_one(at: Harness) -> None:
    parent = at.store.create_session(at.owner.id, "parent", 1000, "p")
    child = at.store.branch_session(parent.id, 0, "child")
    assert re.fullmatch(r"p:branch:[0-9a-f]{8}", child.session_id)
    assert at.store.branch_session(parent.id, 0, "other", "chosen").session_id == "chosen"


def test_a_branch_is_refused_whole(at: Harness) -> None:
    parent = at.session("parent")
    at.append(parent, say("x"))
    for length in (-1, 2):
        with pytest.raises(BranchOutOfRange):
            at.store.branch_session(parent.id, length, "child")
    with pytest.raises(SessionAlreadyExistsError):
        at.store.branch_session(parent.id, 1, "parent")
    with pytest.raises(SessionAlreadyExistsError):
        at.store.branch_session(parent.id, 1, "child", parent.session_id)
    assert at.listed() == ["parent"]


def test_a_branch_is_on_top_of_the_list_and_holds_its_cwd(at: Harness) -> None:
    parent = at.session("parent")
    at.append(parent, cd("/work"))
    at.session("other")
    before = at.store.branch_session(parent.id, 0, "before")
    assert at.mapped("by-cwd") == {cwd_key("/work"): "parent"}
    at.store.branch_session(parent.id, 1, "child")
    assert at.listed() == ["child", "before", "other", "parent"]
    assert at.mapped("by-cwd") == {cwd_key("/work"): "child"}
    assert before.cwd == "/"
    assert at.owner_now().current == "parent"


def test_a_branch_by_header_has_no_place(at: Harness) -> None:
    parent = at.session("parent")
    at.append(parent, *LINES)
    wait(at.store.branch, header("b", parent=parent.session_id, at=2, title="t"))
    head = wait(at.store.head, "b")
    assert head is not None
    assert (head.header, head.length) == (header("b", parent=parent.session_id, at=2, title="t"), 2)
    assert list(wait(at.store.read, "b")) == list(wait(at.store.read, parent.session_id))[:2]
    assert at.listed() == ["parent"]
    with pytest.raises(SessionNotFoundError):
        wait(at.store.branch, header("c", parent="nobody", at=0))
    with pytest.raises(BranchOutOfRange):
        wait(at.store.branch, header("c", parent="b", at=3))
    with pytest.raises(SessionAlreadyExistsError):
        wait(at.store.branch, header("b", parent="b", at=1))


def test_a_chain_of_branches_is_read_to_its_root(at: Harness) -> None:
    session = at.session("s0")
    for n in range(1, 40):
        at.append(session, say(str(n)))
        session = at.store.branch_session(session.id, n, f"s{n}")
    assert at.stream(session, "messages") == raws([say(str(n)) for n in range(1, 40)])
    assert len(at.store.rows(session.id)) == 39


def test_a_big_log_and_its_branch_are_read_in_any_range(at: Harness) -> None:
    parent = at.session("parent")
    sizes = [1, 900_000, 10, 70_000, 5, 5, 300_000, 1, 1_000_000, 20_000, 3] * 2
    lines = [say(chr(ord("a") + n) * size) for n, size in enumerate(sizes)]
    for start in range(0, len(lines), 3):
        at.append(parent, *lines[start : start + 3])
    child = at.store.branch_session(parent.id, 14, "child")
    at.append(child, say("only the child"))
    for session, expected_lines in ((parent, lines), (child, [*lines[:14], say("only the child")])):
        whole = raws(expected_lines)
        assert at.stream(session, "messages") == whole
        for offset in range(0, len(whole), 333_333):
            for size in (1, 4096, 131_072, 1 << 20):
                assert at.store.read_stream(session.id, "messages", offset, size) == whole[offset : offset + size]
        assert [row.raw for row in at.store.rows(session.id)] == [line.raw for line in expected_lines]
