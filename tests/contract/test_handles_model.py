"""Any calls on any handles, against a model: lists of messages, and how many of them each handle has seen."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.entries import NewCut, NewEntry, NewMark, NewMessage
from backend.errors import SessionConflictError, SessionError, SessionNotFoundError
from backend.sessions import SessionHandle, Sessions
from tests.contract.harness import Harness, wait

text = st.text("ab\n\0é\u2028", max_size=3)
message = st.builds(
    lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "assistant"]), text
)
summary = st.lists(message, max_size=2)
entry = st.one_of(
    message.map(NewMessage),
    st.sampled_from([NewMark("turn-skip", {"reason": "r"}), NewMark("undefined", {})]),
    st.builds(lambda before, s: NewCut({"before": before, "summary": s, "reason": "r"}), st.integers(-1, 9), summary),
)
step = st.one_of(
    st.tuples(st.just("open")),
    st.tuples(st.just("delete")),
    st.tuples(st.just("branch"), st.integers(0, 9)),
    st.tuples(st.just("draft"), message),
    st.tuples(st.just("write"), st.lists(entry, max_size=3)),
    st.tuples(st.just("commit"), message),
)


class Log:
    """A session as the model has it; ``gone`` once it was deleted."""

    def __init__(self, entries: list[NewEntry]) -> None:
        self.entries = entries
        self.gone = False


class Modelled:
    """A handle, and what the model says of it."""

    def __init__(self, handle: SessionHandle, log: Log) -> None:
        self.handle = handle
        self.log = log
        self.length = len(log.entries)
        self.draft: Any = None

    def refusal(self, entries: list[NewEntry]) -> type[SessionError] | None:
        if any(_is_wrong(entry, n) for n, entry in enumerate(entries, self.length)):
            return SessionError
        if self.log.gone:
            return SessionNotFoundError
        return None if self.length == len(self.log.entries) else SessionConflictError

    def append(self, call: Callable[[], Any], entries: list[NewEntry]) -> bool:
        """Makes a call that appends; whether the model expects it to."""
        refusal = self.refusal(entries)
        if refusal is None:
            wait(call)
            self.log.entries += entries
            self.length += len(entries)
            return True
        with pytest.raises(refusal) as caught:
            wait(call)
        if isinstance(caught.value, SessionConflictError):
            assert (caught.value.expected_n, caught.value.actual_n) == (self.length, len(self.log.entries))
        return False

    def check(self) -> None:
        assert (self.handle.length, self.handle.draft) == (self.length, self.draft)
        if not self.log.gone:
            assert list(self.handle.messages()) == _projection(self.log.entries[: self.length])
            assert [entry.n for entry in self.handle.entries()] == list(range(self.length))


def _is_wrong(entry: NewEntry, n: int) -> bool:
    if isinstance(entry, NewCut):
        return not 0 <= entry.data["before"] <= n
    return isinstance(entry, NewMark) and entry.name == "undefined"


def _projection(entries: list[NewEntry]) -> list[Any]:
    cuts = [n for n, entry in enumerate(entries) if isinstance(entry, NewCut)]
    begin: list[Any] = []
    if cuts:
        last = entries[cuts[-1]]
        assert isinstance(last, NewCut)
        begin = last.data["summary"]
    return begin + [e.message for e in entries[cuts[-1] + 1 if cuts else 0 :] if isinstance(e, NewMessage)]


class World:
    """Handles on one session and its branches."""

    def __init__(self, harness: Harness) -> None:
        self.sessions = Sessions(harness.store, clock=harness.clock)
        self.logs = {"s": Log([])}
        self.handles = [Modelled(wait(self.sessions.open, "s"), self.logs["s"])]

    def do(self, which: int, step: tuple[Any, ...]) -> None:
        chosen = self.handles[which % len(self.handles)]
        match step:
            case ("open",):
                self._open(chosen.handle.id)
            case ("delete",):
                wait(self.sessions.delete, chosen.handle.id)
                self.logs[chosen.handle.id].gone = True
                self._open(chosen.handle.id)
            case ("branch", at):
                self._branch(chosen, min(at, chosen.length))
            case ("draft", message):
                chosen.handle.set_draft(message)
                chosen.draft = message
            case ("write", entries):
                chosen.append(lambda: chosen.handle.write(entries), entries)
            case ("commit", message):
                self._commit(chosen, message)

    def _open(self, id: str) -> None:
        if self.logs[id].gone:
            self.logs[id] = Log([])
        self.handles.append(Modelled(wait(self.sessions.open, id), self.logs[id]))

    def _branch(self, parent: Modelled, at: int) -> None:
        if not parent.log.gone:
            child = wait(parent.handle.branch, at)
            self.logs[child.id] = Log(parent.log.entries[:at])
            self.handles.append(Modelled(child, self.logs[child.id]))

    def _commit(self, chosen: Modelled, message: Any) -> None:
        if message["role"] != "assistant":
            with pytest.raises(SessionError):
                wait(chosen.handle.commit, message)
        elif chosen.append(lambda: chosen.handle.commit(message), [NewMessage(message)]):
            chosen.draft = None


@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl"])
@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 9), step), max_size=25))
def test_any_calls_do_what_the_model_says(kind: str, steps: list[tuple[int, tuple[Any, ...]]]) -> None:
    with TemporaryDirectory() as directory:
        harness = Harness(kind, Path(directory))
        world = World(harness)
        for which, step in steps:
            world.do(which, step)
            for handle in world.handles:
                handle.check()
        harness.store.close()
