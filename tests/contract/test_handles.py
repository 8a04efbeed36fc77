"""Sessions from Python, on every store: handles, drafts, cuts, branches, conflicts (spec 2.2–2.8)."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing

from backend.entries import CutEntry, MessageEntry, NewCut, NewMark, NewMessage, SessionHead, SessionHeader
from backend.errors import (
    NoPromptError,
    SessionAlreadyExistsError,
    SessionConflictError,
    SessionError,
    SessionNotFoundError,
)
from backend.line_shapes import EVENTS
from backend.marks import BUILT_IN
from backend.sessions import SessionHandle, Sessions
from tests.contract.handles import CUT, PROMPT, opened, said, says, texts
from tests.contract.harness import START, Harness, wait

# open, create, head, list, delete


def test_open_creates_what_is_not_there(sessions: Sessions) -> None:
    assert wait(sessions.head, "s") is None
    handle = wait(sessions.open, "s")
    header = SessionHeader(session_id="s", format_version=1, created_at=START // 1_000_000, delegation_depth=0)
    assert (handle.id, handle.header, handle.length) == ("s", header, 0)
    assert wait(sessions.head, "s") == SessionHead(header, 0)
    assert list(wait(sessions.list)) == [header]


def test_an_id_is_a_uuid_unless_given(sessions: Sessions) -> None:
    handle = wait(sessions.create)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", handle.id)
    with pytest.raises(SessionAlreadyExistsError):
        wait(sessions.create, handle.id)


@pytest.mark.parametrize(
    ("id", "fields"),
    [
        ("", {}),
        ("x", {"delegation_depth": -1}),
        ("x", {"delegation_depth": True}),
        ("x", {"delegation_depth": 1.0}),
        ("x", {"title": 5}),
        ("x", {"origin": {1: 2}}),
        ("x", {"origin": {"set"}}),
        ("x", {"at": 0}),
    ],
)
def test_a_wrong_header_is_refused(sessions: Sessions, id: str, fields: dict[str, Any]) -> None:
    with pytest.raises(SessionError):
        wait(lambda: sessions.create(id, **fields))
    assert list(wait(sessions.list)) == []


def test_a_child_of_a_parent_that_is_not_there(sessions: Sessions) -> None:
    for call in (lambda: sessions.create(parent="nobody"), lambda: sessions.branch("nobody", 0)):
        with pytest.raises(SessionNotFoundError):
            wait(call)


def test_every_open_is_a_snapshot(sessions: Sessions) -> None:
    first = opened(sessions, "s", "one")
    second = wait(sessions.open, "s")
    wait(second.write, says("two"))
    assert (texts(first.messages()), texts(second.messages())) == (["one"], ["one", "two"])
    assert ([entry.n for entry in first.entries()], first.length) == ([0], 1)


def test_a_deleted_session_is_gone_for_its_handles(sessions: Sessions) -> None:
    handle, empty = opened(sessions, "s", "x"), wait(sessions.open, "e")
    assert wait(sessions.delete, "s") is True
    assert wait(sessions.delete, "s") is False
    wait(sessions.delete, "e")
    opened(sessions, "s", "another")
    wait(sessions.open, "e")
    for call in (lambda: list(handle.messages()), lambda: list(handle.entries()), handle.check_invariants):
        with pytest.raises(SessionNotFoundError):
            call()
    with pytest.raises(SessionNotFoundError):
        wait(empty.write, says("into another session of that id"))
    assert wait(sessions.open, "e").length == 0


def test_only_a_store_that_is_not_durable_forgets(at: Harness, sessions: Sessions) -> None:
    opened(sessions, "s", "x")
    wait(sessions.release_if_ephemeral, "s")
    wait(sessions.release_if_ephemeral, "nobody")
    assert (wait(sessions.head, "s") is None) == at.store.ephemeral == (at.kind == "memory")


# writing


def test_what_is_written_is_read(at: Harness, sessions: Sessions) -> None:
    handle = wait(sessions.open, "s")
    meta = {"turn": 1, "step": 0, "usage": {"inputTokens": 2}, "finish": "stop", "timing": {"first": 0.5}, "more": [1]}
    assert wait(handle.write, [NewMessage(said("a"), meta, time=5), {"kind": "cut", "data": CUT, "time": 6}]) == range(
        2
    )
    assert wait(handle.commit, said("b", "assistant"), {"turn": 2}) == 2
    assert wait(handle.mark, "turn-skip", {"reason": "r"}) == 3
    assert wait(handle.compact, CUT) == 4
    assert wait(handle.write, []) == range(5, 5)
    assert handle.entries()[:2] == (MessageEntry(0, 5, said("a"), meta), CutEntry(1, 6, CUT))
    again = wait(Sessions(at.store).open, "s")
    assert list(again.entries()) == list(handle.entries())
    assert again.entries()[2].time == START // 1_000_000


REFUSED: list[Any] = [
    NewMessage({"content": "no role"}),
    NewMessage({"role": 5}),
    NewMessage("not an object"),  # type: ignore[arg-type]
    NewMessage(said("x"), {"turn": True}),
    NewMessage(said("x"), {"step": -1}),
    NewMessage(said("x"), {"usage": {"totalTokens": 1.0}}),
    NewMessage(said("x"), {"finish": None}),
    NewMessage(said("x"), {"timing": {"a": "1"}}),
    NewMessage(said("x"), time=-1),
    NewMessage(said("x"), time=True),
    NewMessage(said("x") | {"meta": {"turn": 1}}),
    NewMessage({"role": "user", "content": {1: 2}}),
    NewMark("not/defined", {}),
    NewMark("preset/selected", {"presetId": "p"}),
    NewMark("delta", {"run": "r"}),
    NewCut({**CUT, "before": 2}),
    NewCut({**CUT, "before": True}),
    NewCut({**CUT, "before": -1}),
    NewCut({"summary": [], "reason": "r"}),
    NewCut({**CUT, "summary": [{"content": "no role"}]}),
    NewCut({**CUT, "summary": "x"}),
    NewCut({**CUT, "reason": 1}),
    NewCut({**CUT, "native": float("nan")}),
    {"kind": "other"},
    {"kind": "message"},
    {"kind": "message", "message": [], "n": 0},
]


@pytest.mark.parametrize("entry", REFUSED, ids=str)
def test_what_may_not_be_written_leaves_everything_as_it_was(at: Harness, sessions: Sessions, entry: Any) -> None:
    handle = wait(sessions.open, "s")
    handle.set_draft(said("d"))
    with pytest.raises(SessionError):
        wait(handle.write, [NewMessage(said("good")), entry])
    assert (handle.length, list(handle.entries()), handle.draft) == (0, [], said("d"))
    assert len(wait(at.store.read, "s")) == 0
    assert wait(handle.write, says("next")) == range(1)


def test_a_defined_mark_is_judged_by_its_schema(at: Harness, sessions: Sessions) -> None:
    handle = wait(sessions.open, "s")
    wait(sessions.define, "demo/x", {"k": "string"})
    wait(handle.mark, "demo/x", {"k": "v", "more": 1})
    with pytest.raises(SessionError):
        wait(handle.mark, "demo/x", {"k": 3})
    other = wait(Sessions(at.store).open, "s")
    with pytest.raises(SessionError):
        wait(other.mark, "demo/x", {"k": "v"})
    assert [entry.n for entry in other.entries()] == [0]


@pytest.mark.parametrize("name", ["", *BUILT_IN, *EVENTS])
def test_a_name_that_has_a_meaning_cannot_be_defined(sessions: Sessions, name: str) -> None:
    with pytest.raises(SessionError, match="cannot be defined"):
        wait(sessions.define, name, {"k": "string"})


def test_commit_takes_the_assistants_message_and_clears_the_draft(sessions: Sessions) -> None:
    handle = wait(sessions.open, "s")
    handle.set_draft(said("d"))
    for message in (said("x"), said("x", "tool"), {"content": "x"}):
        with pytest.raises(SessionError):
            wait(handle.commit, message)
    assert (handle.length, handle.draft) == (0, said("d"))
    wait(handle.write, [NewMessage(said("written", "assistant"))])
    assert handle.draft == said("d")
    wait(handle.commit, said("x", "assistant"))
    assert (handle.length, handle.draft) == (2, None)


def test_nothing_is_shared_with_callers(sessions: Sessions) -> None:
    origin, draft, entry = {"o": [1]}, said("d"), NewMessage(said("x"))
    handle = wait(lambda: sessions.create("s", origin=origin))
    handle.set_draft(draft)
    call = handle.write([entry])
    for shared in (origin, draft, entry.message):
        shared.clear()
    wait(lambda: call)
    for given_out in (handle.header.origin, handle.draft, handle.messages()[0], *wait(sessions.list)):
        if isinstance(given_out, SessionHeader):
            given_out.origin["o"].append(2)
        else:
            given_out.clear()
    again = wait(sessions.open, "s")
    assert (handle.header.origin, again.header.origin) == ({"o": [1]}, {"o": [1]})
    assert (handle.draft, list(handle.messages()), list(again.messages())) == (said("d"), [said("x")], [said("x")])


# conflicts and order


def test_of_two_handles_at_once_one_wins_and_the_other_learns_the_true_length(sessions: Sessions) -> None:
    first, second = opened(sessions, "s", "one"), wait(sessions.open, "s")
    conflicts: list[SessionConflictError] = []

    async def write(handle: SessionHandle, *texts: str) -> None:
        try:
            await handle.write(says(*texts))
        except SessionConflictError as conflict:
            conflicts.append(conflict)

    async def both() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, first, "a", "a")
            nursery.start_soon(write, second, "b", "b")

    wait(both)
    [conflict] = conflicts
    assert (conflict.session_id, conflict.expected_n, conflict.actual_n) == ("s", 1, 3)
    assert sorted([first.length, second.length]) == [1, 3]
    assert texts(wait(sessions.open, "s").messages()) in (["one", "a", "a"], ["one", "b", "b"])


def test_a_stale_handle_conflicts_until_the_session_is_opened_again(sessions: Sessions) -> None:
    stale, other = wait(sessions.open, "s"), wait(sessions.open, "s")
    wait(other.write, says("x"))
    stale.set_draft(said("d", "assistant"))
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: stale.write(says("y")),
        lambda: stale.write([]),
        lambda: stale.commit(said("y", "assistant")),
        lambda: stale.mark("turn-skip", {"reason": "r"}),
        lambda: stale.compact(CUT),
    ]
    for call in calls * 2:
        with pytest.raises(SessionConflictError):
            wait(call)
    assert (stale.length, list(stale.messages()), stale.draft) == (0, [], said("d", "assistant"))
    wait(wait(sessions.open, "s").write, says("y"))
    assert texts(wait(sessions.open, "s").messages()) == ["x", "y"]


class Gate:
    """A store whose ``put`` waits until it is let through, and says who came."""

    def __init__(self, store: Any) -> None:
        self.came: list[int] = []
        self.open = trio.Event()
        self._put = store.put
        store.put = self.put

    async def put(self, session_id: str, expected_n: int, entries: Sequence[Any]) -> None:
        self.came.append(expected_n)
        await self.open.wait()
        await self._put(session_id, expected_n, entries)


@pytest.mark.parametrize("victim", [None, 0, 1, 3])
def test_calls_of_one_handle_run_in_call_order_whoever_is_cancelled(
    at: Harness, sessions: Sessions, victim: int | None
) -> None:
    handle = wait(sessions.open, "s")
    gate = Gate(at.store)
    scopes = [trio.CancelScope() for _ in range(5)]

    async def run(number: int, call: Awaitable[Any]) -> None:
        with scopes[number]:
            await call

    async def refused(call: Awaitable[Any]) -> None:
        with pytest.raises(SessionError):
            await call

    async def body() -> None:
        calls: list[Awaitable[Any]] = [
            handle.write(says("0a", "0b")),
            handle.mark("turn-skip", {"reason": "r"}),
            refused(handle.commit(said("refused"))),
            handle.compact({**CUT, "summary": [said("S")]}),
            handle.commit(said("4", "assistant")),
        ]
        async with trio.open_nursery() as nursery:
            for number, call in enumerate(calls):
                nursery.start_soon(run, number, call)
            await trio.testing.wait_all_tasks_blocked()
            assert gate.came == [0]
            if victim is not None:
                scopes[victim].cancel()
            await trio.testing.wait_all_tasks_blocked()
            gate.open.set()

    wait(body)
    kinds = [["message", "message"], ["mark"], [], ["cut"], ["message"]]
    expected = [kind for number, written in enumerate(kinds) if number != victim for kind in written]
    assert [entry.__struct_config__.tag for entry in handle.entries()] == expected
    assert [entry.n for entry in wait(sessions.open, "s").entries()] == list(range(handle.length))


# projection, cuts, requests


def test_a_hundred_compactions_add_a_hundred_cuts_and_nothing_else(sessions: Sessions) -> None:
    handle = opened(sessions, "s", "one", "two")
    before = list(handle.entries())
    for number in range(100):
        wait(handle.compact, {"before": handle.length, "summary": [said(f"S{number}")], "reason": "token_limit"})
        assert texts(handle.messages()) == [f"S{number}"]
    entries = list(wait(sessions.open, "s").entries())
    assert entries[:2] == before
    assert [entry.data["summary"] for entry in entries[2:] if isinstance(entry, CutEntry)] == [
        [said(f"S{number}")] for number in range(100)
    ]
    assert len(entries) == 102


def test_an_empty_log_can_be_compacted(sessions: Sessions) -> None:
    handle = wait(sessions.open, "s")
    wait(handle.compact, CUT)
    assert (list(handle.messages()), handle.length) == ([], 1)


def test_a_request_is_rebuilt_from_what_was_before_it(sessions: Sessions) -> None:
    handle = opened(sessions, "s", "one")
    wait(handle.mark, "request/context", {"provider": "p", "model": "old"})
    wait(handle.mark, "request/context", {"provider": "p", "model": "m"})
    first = wait(handle.mark, "prompt", PROMPT)
    wait(handle.commit, said("two", "assistant"))
    wait(handle.mark, "request/context", {"provider": "p", "model": "later"})
    wait(handle.compact, {**CUT, "summary": [said("S")]})
    second = wait(handle.mark, "prompt", PROMPT)
    request = handle.reconstruct_request(first)
    context = {"provider": "p", "model": "m"}
    assert request == {"header": PROMPT["header"], "context": context, "messages": [said("one")]}
    request = handle.reconstruct_request(second)
    assert (request["context"]["model"], texts(request["messages"])) == ("later", ["S"])
    no_prompts: list[Any] = [0, 1, -1, handle.length, True, 1.0, "3"]
    for n in no_prompts:
        with pytest.raises(NoPromptError):
            handle.reconstruct_request(n)


def test_a_request_far_behind_its_context(sessions: Sessions) -> None:
    handle = wait(sessions.open, "s")
    context = {"provider": "p", "model": "m"}
    wait(handle.write, [NewMark("request/context", context), *says(*map(str, range(700))), NewMark("prompt", PROMPT)])
    request = handle.reconstruct_request(701)
    assert (request["context"], len(request["messages"])) == (context, 700)


def test_the_invariants_of_a_stored_log(at: Harness, sessions: Sessions) -> None:
    handle = opened(sessions, "s", "x")
    assert list(handle.check_invariants()) == []
    wait(at.store.put, "s", 1, [NewCut({"before": 9}), NewMark("undefined", 1)])
    [fault] = wait(sessions.open, "s").check_invariants()
    assert (fault.index, fault.rule) == (1, "cut-before")


# branches
