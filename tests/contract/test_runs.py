"""What the log says of runs, found by index, and which runs are live (``SessionFiles``, spec 3.3)."""

import pytest

from backend.errors import CtxError, Missing
from backend.rows import MAX_RUN_LINES, Append, Line, RunLine, Session
from tests.contract.harness import Harness, event, line, say


def user(run: str, text: str = "hello") -> Line:
    return line("messages", {"role": "user", "content": text, "run": run})


def start(run: str, client: str, cwd: str | None = "/") -> Line:
    return event("start", id=run, run=run, client_id=client, scope="private", cwd=cwd)


def done(run: str, status: str = "ok") -> Line:
    return event("done", run=run, status=status)


def test_a_run_is_found_by_its_client_id_and_by_its_own(at: Harness) -> None:
    session = at.session("s")
    at.append(session, say("before"), user("r1"), start("r1", "c1"))
    at.append(session, say("between", "assistant"), done("r1"))
    assert at.store.starts(session.id, "c1") == [RunLine(2, "start", "r1", "c1")]
    assert [(found.n, found.kind) for found in at.store.run_lines(session.id, "r1")] == [
        (1, "user"),
        (2, "start"),
        (4, "done"),
    ]
    assert at.store.starts(session.id, "c2") == at.store.run_lines(session.id, "r2") == []


@pytest.mark.parametrize("cwd", ["/", None])
def test_runs_are_found_however_their_lines_came(at: Harness, cwd: str | None) -> None:
    """One by one, so that they wait to be merged, or together."""
    session = at.session("s")
    for value in (user("r1"), start("r1", "c1", cwd), done("r1")):
        at.append(session, value)
    at.append(session, *(value for n in range(200) for value in (user(f"x{n}"), start(f"x{n}", f"y{n}", cwd))))
    assert [found.n for found in at.store.run_lines(session.id, "r1")] == [0, 1, 2]
    assert [found.n for found in at.store.starts(session.id, "y150")] == [304]


def test_runs_of_one_session_are_not_those_of_another(at: Harness) -> None:
    one, two = at.session("one"), at.session("two")
    at.append(one, user("r1"), start("r1", "c1"))
    assert at.store.starts(two.id, "c1") == at.store.run_lines(two.id, "r1") == []


def test_contradictions_are_found_as_they_are(at: Harness) -> None:
    session = at.session("s")
    at.append(session, *(start(f"r{n}", "c1") for n in range(5)), *(done("r0") for _ in range(100)))
    assert [found.run for found in at.store.starts(session.id, "c1")] == ["r0", "r1"]
    assert len(at.store.run_lines(session.id, "r0")) == MAX_RUN_LINES


def test_a_branch_has_the_runs_of_its_prefix_and_its_own(at: Harness) -> None:
    parent = at.session("parent")
    at.append(parent, user("r1"), start("r1", "c1"), done("r1"))
    child = at.store.branch_session(parent.id, 2, "child")
    at.append(child, done("r1", "error"), user("r2"), start("r2", "c2"))
    grandchild = at.store.branch_session(child.id, 4, "grandchild")
    at.append(parent, user("r3"), start("r3", "c2"))

    def found(session: Session, run: str) -> list[int]:
        return [each.n for each in at.store.run_lines(session.id, run)]

    assert (found(parent, "r1"), found(child, "r1"), found(grandchild, "r1")) == ([0, 1, 2], [0, 1, 2], [0, 1, 2])
    assert (found(parent, "r2"), found(child, "r2"), found(grandchild, "r2")) == ([], [3, 4], [3])
    assert [each.run for each in at.store.starts(child.id, "c2")] == ["r2"]
    assert at.store.starts(grandchild.id, "c2") == []
    at.store.delete_session(parent.id)
    assert found(child, "r1") == [0, 1, 2]


def test_runs_are_found_after_a_restart(durable: Harness) -> None:
    session = durable.session("s")
    durable.append(session, user("r1"), start("r1", "c1"))
    durable.reopen()
    durable.append(session, done("r1"))
    durable.reopen()
    assert [found.kind for found in durable.store.run_lines(session.id, "r1")] == ["user", "start", "done"]
    assert [found.n for found in durable.store.starts(session.id, "c1")] == [1]


def test_a_run_is_live_from_what_begins_it_to_its_done(at: Harness) -> None:
    one, two = at.session("one"), at.session("two")
    at.append(one, user("r1"), start("r1", "c1"), begins="r1")
    at.append(two, user("r2"), start("r2", "c2"), begins="r2")
    assert sorted(at.store.live_runs()) == [(one.id, "r1"), (two.id, "r2")]
    at.append(one, done("r1"))
    at.append(two, done("r1"))
    assert at.store.live_runs() == [(two.id, "r2")]
    at.store.forget_run(two.id)
    assert at.store.live_runs() == []


def test_a_start_by_itself_is_no_live_run(at: Harness) -> None:
    at.append(at.session("s"), user("r1"), start("r1", "c1"))
    assert at.store.live_runs() == []


def test_a_refused_append_begins_and_ends_nothing(at: Harness) -> None:
    session = at.session("s")
    [refused] = at.store.append([Append(session.id, [start("r1", "c1")], expected_n=7, begins="r1")])
    assert isinstance(refused, CtxError)
    assert at.store.live_runs() == []
    at.append(session, start("r1", "c1"), begins="r1")
    [refused] = at.store.append([Append(session.id, [done("r1")], expected_n=7)])
    assert isinstance(refused, CtxError)
    assert at.store.live_runs() == [(session.id, "r1")]


def test_the_session_of_a_run_becomes_the_current_one(at: Harness) -> None:
    one, two = at.session("one"), at.session("two")
    before = at.owner_now()
    assert not at.append(one, start("r1", "c1"), begins="r1").selected
    assert at.owner_now().current_mtime == before.current_mtime
    assert at.append(two, start("r2", "c2", None), begins="r2").selected
    assert at.owner_now().current == "two"
    assert at.owner_now().current_mtime > before.current_mtime
    assert not at.append(one, done("r1")).selected


def test_who_was_current_when_runs_begin_together_is_the_last(at: Harness) -> None:
    one, two = at.session("one"), at.session("two")
    results = at.store.append(
        [
            Append(two.id, [start("r2", "c2")], begins="r2"),
            Append(one.id, [start("r1", "c1")], begins="r1"),
        ]
    )
    assert [result.selected for result in results if not isinstance(result, CtxError)] == [True, True]
    assert at.owner_now().current == "one"


def test_live_runs_survive_a_restart(durable: Harness) -> None:
    session = durable.session("s")
    durable.append(session, user("r1"), start("r1", "c1"), begins="r1")
    durable.reopen()
    assert durable.store.live_runs() == [(session.id, "r1")]
    durable.append(session, done("r1"))
    durable.reopen()
    assert durable.store.live_runs() == []


@pytest.mark.parametrize("removed", ["archived", "deleted"])
def test_a_session_that_goes_takes_its_live_run_along(at: Harness, removed: str) -> None:
    session, _ = at.session("s"), at.session("t")
    at.append(session, start("r1", "c1"), begins="r1")
    at.store.set_current(at.owner.id, "t")
    if removed == "archived":
        at.store.archive_session(session.id, at.archive().id)
    else:
        at.store.delete_session(session.id)
    assert at.store.live_runs() == []


def test_of_a_session_that_is_gone_nothing_is_found(at: Harness) -> None:
    session, _ = at.session("s"), at.session("t")
    at.store.delete_session(session.id)
    with pytest.raises(Missing):
        at.store.starts(session.id, "c1")
    with pytest.raises(Missing):
        at.store.run_lines(session.id, "r1")


def test_a_log_is_indexed_in_turns_while_it_grows(at: Harness) -> None:
    session = at.session("s")
    at.append(session, user("r1"), start("r1", "c1"), *(say(f"{n}") for n in range(500)), done("r1"))
    if at.kind != "memory":
        at.reopen()
    grown, turns = 0, 1
    while at.store.index_runs(session.id):
        if grown < 3:
            at.append(session, start(f"x{grown}", f"y{grown}"))
            grown += 1
        turns += 1
        assert turns < 100
    assert [found.n for found in at.store.run_lines(session.id, "r1")] == [0, 1, 502]
    assert [found.n for n in range(grown) for found in at.store.starts(session.id, f"y{n}")] == [
        *range(503, 503 + grown)
    ]
    at.append(session, start("last", "last"))
    assert not at.store.index_runs(session.id)
    assert [found.n for found in at.store.starts(session.id, "last")] == [503 + grown]


def test_a_turn_reads_few_bytes(at: Harness) -> None:
    session = at.session("s")
    at.append(session, *(say("x" * 100_000) for _ in range(20)))
    if at.kind != "memory":
        at.reopen()
    turns = 0
    while at.store.index_runs(session.id):
        turns += 1
    assert turns == (6 if at.kind == "jsonl" else 0)


@pytest.mark.parametrize("look", ["at_once", "later", "after_a_restart"])
def test_runs_that_take_turns_move_what_leads_to_their_sessions(at: Harness, look: str) -> None:
    """However long the store lets their lines wait, and whoever looks meanwhile."""
    one, two = at.session("one"), at.session("two")
    begun: dict[int, str] = {}
    for n in range(8):
        session = (one, two)[n % 2]
        run = f"r{n}"
        changed = at.append(session, user(run), start(run, run), begins=run)
        assert changed.selected == (n > 0)
        assert len(changed.keys_new) == (n == 0)
        assert len(changed.keys_changed) == (n > 0)
        begun[session.id] = run
        if n in (3, 6):
            at.append(session, done(run))
            del begun[session.id]
        if look == "after_a_restart" and at.kind != "memory":
            at.reopen()
        if look != "later" or n == 7:
            assert set(at.mapped("by-cwd").values()) == {session.name}
            assert at.owner_now().current == session.name
            assert dict(at.store.live_runs()) == begun


def test_a_run_in_the_same_place_again_changes_nothing_that_leads_there(at: Harness) -> None:
    session = at.session("s")
    at.append(session, user("r0"), start("r0", "c0"), begins="r0")
    [key] = at.mapped("by-cwd")
    for n in range(1, 4):
        changed = at.append(session, user(f"r{n}"), start(f"r{n}", f"c{n}"), begins=f"r{n}")
        assert not (changed.selected or changed.keys_new or changed.keys_changed or changed.keys_gone)
    moved = at.append(session, user("r4"), start("r4", "c4", "/elsewhere"), begins="r4")
    assert (len(moved.keys_new), moved.keys_gone) == (1, (key,))
    other = at.session("other")
    at.append(other, start("o", "o", "/elsewhere"), begins="o")
    at.append(session, start("r5", "c5", "/elsewhere"), begins="r5")
    at.store.delete_session(other.id)
    assert list(at.mapped("by-cwd").values()) == ["s"]
    assert dict(at.store.live_runs()) == {session.id: "r5"}
