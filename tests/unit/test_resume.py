"""Which session a turn goes on with (spec 5.2): the rules one by one, and any order of events against a plain model."""

import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from ctxfs.cosh.resume import Attempt, Phase, ResumeState, Selection, SessionFailure

_LOAD = ["not_found", "corrupt", "incompatible_version", "scope_mismatch"]


def failure(code: str = "corrupt", phase: str = "load") -> SessionFailure:
    return SessionFailure(code, phase, f"raw {code}")


def test_a_fresh_turn_makes_its_session_the_active_one() -> None:
    state = ResumeState("/w")
    attempt = state.start()
    assert attempt.session_id is None
    assert state.initialized(attempt, "a", is_resumable=None)
    assert state.snapshot().active_id is None
    assert state.succeeded(attempt, "a")
    assert state.snapshot().active_id == "a"
    assert state.start().session_id == "a"


def test_a_selection_goes_from_selected_over_restoring_to_active() -> None:
    state = ResumeState("/w", "a")
    state.select("b")
    attempt = state.start()
    assert state.snapshot().selection == Selection("b", Phase.RESTORING)
    assert state.initialized(attempt, "b", is_resumable=True)
    assert state.succeeded(attempt, "b")
    assert (state.snapshot().active_id, state.snapshot().selection) == ("b", None)


@pytest.mark.parametrize(
    "found", [*[failure(code) for code in _LOAD], failure("io", "persist"), failure("conflict", "persist")]
)
def test_a_failure_of_a_selected_session_fails_the_selection_only(found: SessionFailure) -> None:
    state = ResumeState("/w", "a")
    state.select("b")
    state.failed(state.start(), found)
    assert state.snapshot().active_id == "a"
    assert state.snapshot().selection == Selection("b", Phase.FAILED, found)
    assert found.hint
    assert state.start().session_id == "a"


@pytest.mark.parametrize("found", [failure(), failure("io", "persist")])
def test_a_failure_of_the_active_session_releases_it(found: SessionFailure) -> None:
    state = ResumeState("/w", "a")
    state.failed(state.start(), found)
    assert state.snapshot().active_id is None


@pytest.mark.parametrize("found", [None, failure("io"), failure("conflict"), failure("corrupt", "turn")])
def test_no_other_error_says_anything_of_a_session(found: SessionFailure | None) -> None:
    state = ResumeState("/w", "a")
    state.select("b")
    state.failed(state.start(), found)
    assert state.snapshot().selection == Selection("b", Phase.SELECTED)
    assert state.snapshot().active_id == "a"


def test_a_session_with_another_id_is_never_committed() -> None:
    state = ResumeState("/w", "a")
    state.select("b")
    attempt = state.start()
    assert not state.succeeded(attempt, "c")
    chosen = state.snapshot().selection
    assert chosen is not None and chosen.phase is Phase.FAILED
    assert state.snapshot().active_id == "a"


def test_a_turn_without_resuming_carries_nothing_and_uses_up_no_selection() -> None:
    state = ResumeState("/w", "a")
    state.select("b")
    preempted = state.start()
    fresh = state.start(resume=False)
    assert fresh.session_id is None
    assert state.snapshot().selection == Selection("b", Phase.SELECTED)
    assert not state.succeeded(preempted, "b")
    assert state.succeeded(fresh, "c")
    assert (state.snapshot().active_id, state.snapshot().selection) == ("c", Selection("b"))


@pytest.mark.parametrize("ends", ["succeeded", "failed", "cancelled"])
def test_a_session_that_cannot_be_resumed_is_not_captured_and_ends_what_was_carried(ends: str) -> None:
    state = ResumeState("/w", "a")
    attempt = state.start()
    assert state.initialized(attempt, "new", is_resumable=False)
    assert state.snapshot().active_id is None
    if ends == "succeeded":
        assert not state.succeeded(attempt, "new")
    else:
        getattr(state, ends)(attempt)
    assert state.snapshot().active_id is None


def test_a_fresh_turn_that_cannot_be_resumed_ends_nothing() -> None:
    state = ResumeState("/w", "a")
    state.select("b")
    state.initialized(state.start(resume=False), "new", is_resumable=False)
    assert (state.snapshot().active_id, state.snapshot().selection) == ("a", Selection("b"))


def test_an_old_worker_changes_nothing_even_for_the_same_id() -> None:
    state = ResumeState("/w", "a")
    state.select("b")
    old = state.start()
    new = state.start()
    state.failed(old, failure())
    assert state.snapshot().selection == Selection("b", Phase.RESTORING)
    assert not state.initialized(old, "b", is_resumable=False)
    assert state.succeeded(new, "b")
    state.failed(old, failure())
    assert state.snapshot().active_id == "b"


@pytest.mark.parametrize("change", ["select", "reject"])
def test_another_selection_or_none_makes_the_attempt_old(change: str) -> None:
    state = ResumeState("/w", "a")
    state.select("b")
    attempt = state.start()
    before = state.snapshot().generation
    state.select("c") if change == "select" else state.reject()
    assert state.snapshot().generation > before
    assert not state.succeeded(attempt, "b")
    assert state.snapshot().active_id == "a"


def test_a_structured_failure_before_a_cancellation_counts() -> None:
    state = ResumeState("/w", "a")
    state.select("b")
    attempt = state.start()
    state.failed(attempt, failure("not_found"))
    state.cancelled(attempt)
    assert state.snapshot().selection == Selection("b", Phase.FAILED, failure("not_found"))


def test_a_selection_waits_for_the_clear_that_holds_the_lease() -> None:
    state = ResumeState("/w", "a")
    state.select("b")
    order: list[str] = []
    held, waiting = threading.Event(), threading.Event()

    def choose() -> None:
        held.wait()
        waiting.set()
        state.select("c")
        order.append("selected")

    chooser = threading.Thread(target=choose)
    chooser.start()
    with state.lease() as lease:
        held.set()
        waiting.wait()
        assert lease.protected_ids() == ("a", "b")
        order.append("cleared")
    chooser.join()
    assert order == ["cleared", "selected"]


class Model(RuleBasedStateMachine):
    """Plain rules over plain variables; attempts are kept for ever, so that late ones are tried too."""

    attempts = Bundle("attempts")
    ids = st.sampled_from(["a", "b", "c"])

    def __init__(self) -> None:
        super().__init__()
        self.state = ResumeState("/w", "a")
        self.active: str | None = "a"
        self.chosen: str | None = None
        self.phase = "selected"
        self.live: Attempt | None = None
        self.generation = 0

    def preempt(self) -> None:
        if self.phase == "restoring":
            self.phase = "selected"

    def fail_selection_or_drop_active(self, attempt: Attempt) -> None:
        if attempt.is_selected:
            self.phase = "failed"
        elif attempt.session_id == self.active:
            self.active = None

    @rule(id=ids)
    def select(self, id: str) -> None:
        self.state.select(id)
        self.chosen, self.phase, self.live = id, "selected", None

    @rule()
    def reject(self) -> None:
        self.state.reject()
        self.chosen, self.live = None, None

    @rule(target=attempts, resume=st.booleans())
    def start(self, resume: bool) -> Attempt:
        attempt = self.state.start(resume=resume)
        self.preempt()
        carried = self.chosen if self.chosen is not None and self.phase != "failed" else self.active
        assert attempt.session_id == (carried if resume else None)
        assert attempt.is_selected == (resume and self.chosen is not None and self.phase != "failed")
        if attempt.is_selected:
            self.phase = "restoring"
        assert attempt.generation > self.generation
        self.generation = attempt.generation
        self.live = attempt
        return attempt

    @rule(attempt=attempts, id=ids, resumable=st.sampled_from([None, True, False]))
    def initialized(self, attempt: Attempt, id: str, resumable: bool | None) -> None:
        accepted = self.state.initialized(attempt, id, is_resumable=resumable)
        if attempt != self.live:
            assert not accepted
        elif resumable is False:
            assert accepted
            self.live = None
            if attempt.is_selected:
                self.chosen = None
            if attempt.session_id == self.active:
                self.active = None
        else:
            assert accepted == (attempt.session_id in (None, id))
            if not accepted:
                self.live = None
                self.fail_selection_or_drop_active(attempt)

    @rule(attempt=attempts, id=ids)
    def succeeded(self, attempt: Attempt, id: str) -> None:
        accepted = self.state.succeeded(attempt, id)
        if attempt != self.live:
            assert not accepted
            return
        self.live = None
        assert accepted == (attempt.session_id in (None, id))
        if not accepted:
            self.fail_selection_or_drop_active(attempt)
            return
        self.active = id
        if attempt.is_selected:
            self.chosen = None

    @rule(
        attempt=attempts,
        code=st.sampled_from([*_LOAD, "io", "conflict"]),
        phase=st.sampled_from(["load", "persist", "turn"]),
    )
    def failed(self, attempt: Attempt, code: str, phase: str) -> None:
        self.state.failed(attempt, failure(code, phase))
        if attempt != self.live:
            return
        self.live = None
        if phase == "persist" or (phase == "load" and code in _LOAD):
            self.fail_selection_or_drop_active(attempt)
        else:
            self.preempt()

    @rule(attempt=attempts)
    def cancelled(self, attempt: Attempt) -> None:
        self.state.cancelled(attempt)
        if attempt == self.live:
            self.live = None
            self.preempt()

    @invariant()
    def they_agree(self) -> None:
        found = self.state.snapshot()
        assert found.active_id == self.active
        if self.chosen is None:
            assert found.selection is None
        else:
            assert found.selection is not None
            assert (found.selection.session_id, found.selection.phase.value) == (self.chosen, self.phase)


TestAnyOrder = Model.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
