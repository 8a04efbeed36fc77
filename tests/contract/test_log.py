"""The log contract (``SessionStore``, spec 2.9)."""

from typing import Any

import pytest

from backend.entries import MarkEntry, MessageEntry, NewCut, NewEntry, NewMark, NewMessage
from backend.errors import (
    SessionAlreadyExistsError,
    SessionConflictError,
    SessionError,
    SessionNotFoundError,
)
from tests.contract.harness import Harness, header, say, wait

ENTRIES: list[NewEntry] = [
    NewMessage({"role": "user", "content": "hi \U0001f600"}, {"turn": 1, "usage": {"inputTokens": 3}}, time=10),
    NewMark("turn-skip", {"reason": "policy"}, time=11),
    NewMark("undefined/anywhere", {"k": [1, 2.5, None, True]}, time=12),
    NewMark("delta", {"run": "r", "text": "x"}, time=13),
    NewMark("delta", {"not": "a delta"}, time=14),
    NewMark("plain", "not an object", time=15),
    NewCut({"before": 99, "summary": [{"role": "x"}], "reason": "manual", "native": [1]}, time=16),
    NewMessage({"role": "assistant", "content": [{"type": "text", "text": "yes"}], "toolCalls": []}, time=5),
    NewMessage({"role": "notice", "anything": {"b": 1, "a": "\0 and \ud800"}}, time=17),
]


def described(entries: Any) -> list[tuple[Any, ...]]:
    names = ("message", "meta", "name", "data", "time")
    return [tuple(getattr(entry, name, None) for name in names) for entry in entries]


def test_an_absent_session_is_absent(at: Harness) -> None:
    assert wait(at.store.head, "nobody") is None
    assert wait(at.store.delete, "nobody") is False
    for call in (lambda: wait(at.store.read, "nobody"), lambda: wait(at.store.put, "nobody", 0, ENTRIES)):
        with pytest.raises(SessionNotFoundError) as caught:
            call()
        assert caught.value.session_id == "nobody"


def test_a_header_survives(at: Harness) -> None:
    full = header("x", created_at=5, delegation_depth=2, parent="p", at=3, title="t", origin={"any": ["json", None]})
    wait(at.store.create, full)
    head = wait(at.store.head, "x")
    assert head is not None
    assert (head.header, head.length) == (full, 0)


def test_a_session_is_created_with_its_entries_or_not_at_all(at: Harness) -> None:
    with pytest.raises(SessionError):
        wait(at.store.create, header("x"), [*ENTRIES, NewMessage({"content": "no role"})])
    assert wait(at.store.head, "x") is None
    wait(at.store.create, header("x"), ENTRIES)
    assert described(wait(at.store.read, "x")) == described(ENTRIES)
    with pytest.raises(SessionAlreadyExistsError):
        wait(at.store.create, header("x"), [])
    assert len(wait(at.store.read, "x")) == len(ENTRIES)


@pytest.mark.parametrize(
    "fields",
    [
        {"format_version": 2},
        {"delegation_depth": -1},
        {"delegation_depth": True},
        {"parent": "p"},
        {"at": 1},
        {"origin": float("nan")},
        {"origin": {1: 2}},
        {"session_id": ""},
    ],
)
def test_a_wrong_header_is_refused(at: Harness, fields: dict[str, Any]) -> None:
    with pytest.raises(SessionError):
        wait(at.store.create, header(**{"session_id": "x"} | fields))
    assert wait(at.store.list) == []


def test_any_non_empty_id_is_an_id(at: Harness) -> None:
    ids = ["a/b", "..", "a:branch:0", "\n", "é\U0001f600", "x" * 1000, "index", " "]
    for number, session_id in enumerate(ids):
        wait(at.store.create, header(session_id), [NewMark("n", {"n": number})])
    for number, session_id in enumerate(ids):
        [entry] = wait(at.store.read, session_id)
        assert isinstance(entry, MarkEntry)
        assert entry.data == {"n": number}


def test_put_appends_at_the_right_length_only(at: Harness) -> None:
    wait(at.store.create, header("x"))
    wait(at.store.put, "x", 0, ENTRIES[:2])
    for stale in (0, 1, 3):
        with pytest.raises(SessionConflictError) as caught:
            wait(at.store.put, "x", stale, ENTRIES[2:])
        assert (caught.value.session_id, caught.value.expected_n, caught.value.actual_n) == ("x", stale, 2)
    wait(at.store.put, "x", 2, ENTRIES[2:])
    read = wait(at.store.read, "x")
    assert [entry.n for entry in read] == list(range(len(ENTRIES)))
    assert described(read) == described(ENTRIES)


def test_put_of_nothing_still_checks_the_length(at: Harness) -> None:
    wait(at.store.create, header("x"))
    wait(at.store.put, "x", 0, [])
    with pytest.raises(SessionConflictError):
        wait(at.store.put, "x", 1, [])


def test_put_is_all_or_nothing(at: Harness) -> None:
    wait(at.store.create, header("x"), ENTRIES[:1])
    cycle: list[Any] = []
    cycle.append(cycle)
    for bad in (float("inf"), b"bytes", {1}, {1: 2}, (1,), cycle):
        with pytest.raises(SessionError):
            wait(at.store.put, "x", 1, [ENTRIES[0], NewMark("m", {"v": bad})])
    assert len(wait(at.store.read, "x")) == 1


def test_an_entry_without_a_time_gets_the_clock_s(at: Harness) -> None:
    wait(at.store.create, header("x"), [NewMessage({"role": "user"}), NewMessage({"role": "user"}, time=3)])
    assert [entry.time for entry in wait(at.store.read, "x")] == [at.clock.now // 1_000_000, 3]


def test_a_negative_start_or_limit_is_refused(at: Harness) -> None:
    wait(at.store.create, header("x"), [NewMessage({"role": "user"})])
    with pytest.raises(SessionError, match="start"):
        wait(at.store.read, "x", -1)
    with pytest.raises(SessionError, match="limit"):
        wait(at.store.list, limit=-1)


def test_read_starts_where_it_is_told(at: Harness) -> None:
    wait(at.store.create, header("x"), [NewMark("m", {"n": n}) for n in range(2500)])
    for start in (0, 1, 999, 1000, 2499, 2500, 9999):
        assert [entry.n for entry in wait(at.store.read, "x", start)] == list(range(start, 2500))


def test_lines_of_files_and_entries_are_one_log(at: Harness) -> None:
    session = at.session("one")
    at.append(session, say("by file"))
    wait(at.store.put, session.session_id, 1, [NewMessage({"role": "assistant", "content": "by API"})])
    first, second = wait(at.store.read, session.session_id)
    assert isinstance(first, MessageEntry)
    assert isinstance(second, MessageEntry)
    assert first.message == {"role": "user", "content": "by file"}
    assert at.store.latest(session.id) == b"by API\n"
    assert at.stream(session, "messages").endswith(b'{"content":"by API","role":"assistant"}\n')
    head = wait(at.store.head, session.session_id)
    assert head is not None
    assert (head.length, head.header.created_at) == (2, session.created_at)


def test_the_list_is_by_creation_then_id(at: Harness) -> None:
    for session_id, created_at, parent in (("b", 5, None), ("a", 5, None), ("c", 9, "a"), ("d", 1, "a")):
        wait(at.store.create, header(session_id, created_at=created_at, parent=parent, at=0 if parent else None))
    assert [row.session_id for row in wait(at.store.list)] == ["c", "a", "b", "d"]
    assert [row.session_id for row in wait(at.store.list, limit=2)] == ["c", "a"]
    assert wait(at.store.list, limit=0) == []
    assert [row.session_id for row in wait(at.store.list, parent="a")] == ["c", "d"]
    assert [row.session_id for row in wait(at.store.list, parent="a", limit=1)] == ["c"]
    assert wait(at.store.list, parent="b") == []


def test_delete_forgets_the_session_and_its_id(at: Harness) -> None:
    wait(at.store.create, header("x"), ENTRIES)
    assert wait(at.store.delete, "x") is True
    assert wait(at.store.head, "x") is None
    wait(at.store.create, header("x"))
    assert list(wait(at.store.read, "x")) == []


def test_deleting_by_id_takes_the_directory_too(at: Harness) -> None:
    session = at.session("one")
    assert wait(at.store.delete, session.session_id) is True
    assert at.listed() == []
    assert at.store.session(at.owner.id, "one") is None


def test_a_session_without_a_place_is_in_no_index(at: Harness) -> None:
    wait(at.store.create, header("x"), [NewMark("cwd", {"cwd": "/work"})])
    assert at.listed() == []
    assert at.mapped("by-cwd") == {}
    assert at.owner_now().current is None
