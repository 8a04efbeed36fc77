"""What a durable store still says after it was closed and opened again."""

import threading
from concurrent.futures import ThreadPoolExecutor

from backend.entries import NewMark, NewMessage
from backend.lines import meta_line, state_line
from backend.rows import Source
from tests.contract.harness import START, Harness, cd, header, say, wait


def filled(at: Harness) -> None:
    at.store.add_space("shared/team", 0, 500, 0o2770)
    one, two, three = (at.session(name) for name in ("one", "two", "three"))
    at.append(one, say("x", "assistant"), cd("/work"), state_line("idle", "done"))
    at.append(two, cd("/work"), meta_line({"client": "c", "scope": "private"}), time=77)
    at.append(one, say("y"))
    at.store.branch_session(one.id, 2, "child")
    at.append(three, say("z"))
    at.store.archive_session(three.id, at.archive().id)
    at.store.set_mapping(at.owner.id, "by-hash", "abc", "two")
    at.store.set_current(at.owner.id, "two")
    at.store.write_snapshot(one.id, "AGENTS.md", b"snapshot\n")
    agent = at.store.add_definition("agent", "coder")
    at.store.set_definition_value(agent, "exec", b"[]\n")
    wait(at.store.create, header("x", title="t", origin={"a": 1}), [NewMessage({"role": "user"}), NewMark("m", 1)])


def everything(at: Harness) -> list[object]:
    store, owner = at.store, at.owner.id
    sessions = [*store.sessions(owner), *store.archived_sessions(at.archive().id)]
    ids = [row.session_id for row in wait(store.list)]
    [agent] = store.definitions("agent")
    return [
        [list(store.spaces("home/")), list(store.spaces("shared/"))],
        [at.owner_now(), at.listed(), list(store.archive_directories("home/1000", None))],
        sessions,
        [list(store.mappings(owner, kind)) for kind in ("by-cwd", "by-hash", "by-uuid")],
        [(at.stream(row, "messages"), at.stream(row, "events"), store.latest(row.id)) for row in sessions],
        [list(store.rows(row.id)) for row in sessions],
        [(store.snapshot(row.id, "AGENTS.md"), store.snapshot(row.id, "SKILLS.md")) for row in sessions],
        [agent, store.definition_value(agent[0], "exec")],
        [(wait(store.head, name), list(wait(store.read, name))) for name in ids],
    ]


def test_everything_is_as_it_was(durable: Harness) -> None:
    filled(durable)
    before = everything(durable)
    durable.reopen()
    assert everything(durable) == before


def test_closing_with_nothing_written_changes_nothing(durable: Harness) -> None:
    filled(durable)
    before = everything(durable)
    durable.reopen()
    durable.reopen()
    assert everything(durable) == before


def test_mtimes_and_sequences_go_on_rising_under_a_clock_that_went_back(durable: Harness) -> None:
    session = durable.session("one")
    last = durable.append(session, say("x", "assistant"), cd("/work")).session
    durable.clock.pass_seconds(-3600)
    durable.reopen()
    now = durable.append(session, say("y", "assistant"), cd("/other")).session
    for field in ("messages_mtime", "events_mtime", "latest_mtime", "cwd_mtime", "seq", "cwd_seq"):
        assert getattr(now, field) > getattr(last, field), field


def test_equal_stamps_and_a_jumping_clock_leave_one_order_over_restarts(durable: Harness) -> None:
    """Field report 17: the order of commits decides, no stamp and no clock."""
    sessions = [durable.session(f"s{n:02}") for n in range(20)]
    order = [sessions[n * 7 % 20] for n in range(20)]
    for n, session in enumerate(order):
        durable.clock.pass_seconds((0, 5 * 3600, -10 * 3600, 5 * 3600)[n % 4])
        durable.append(session, say("x"), time=77 if n % 3 else 99_999_999_999_999)
    expected = [session.name for session in reversed(order)]
    for _ in range(2):
        assert durable.listed() == expected
        durable.reopen()
    durable.append(order[0], say("x"), time=1)
    assert durable.listed() == [order[0].name, *expected[:-1]]


def test_ids_are_not_used_again_after_a_restart(durable: Harness) -> None:
    durable.session("current")
    gone = durable.session("one")
    durable.store.delete_session(gone.id)
    durable.reopen()
    assert durable.session("one").id > gone.id


def test_appends_go_on_after_a_restart(durable: Harness) -> None:
    session = durable.session("one")
    durable.append(session, say("a"), cd("/work"))
    child = durable.store.branch_session(session.id, 1, "child")
    durable.reopen()
    durable.append(session, say("b"), expected_n=2)
    durable.append(child, say("c"), expected_n=1)
    assert durable.stream(session, "messages") == say("a").raw + b"\n" + say("b").raw + b"\n"
    assert durable.stream(child, "messages") == say("a").raw + b"\n" + say("c").raw + b"\n"


def test_a_child_outlives_its_parent_and_a_restart(durable: Harness) -> None:
    durable.session("current")
    parent = durable.session("parent")
    durable.append(parent, say("a"), say("b"))
    child = durable.store.branch_session(parent.id, 1, "child")
    durable.store.delete_session(parent.id)
    durable.reopen()
    assert durable.stream(child, "messages") == say("a").raw + b"\n"
    durable.append(child, say("c"))
    durable.reopen()
    assert durable.stream(child, "messages") == say("a").raw + b"\n" + say("c").raw + b"\n"


def test_sync_runs_in_another_thread_while_appends_go_on(durable: Harness) -> None:
    session = durable.session("one")
    done = threading.Event()

    def sync() -> None:
        while not done.is_set():
            durable.store.sync()

    with ThreadPoolExecutor(2) as pool:
        syncing = [pool.submit(sync) for _ in range(2)]
        try:
            for n in range(100):
                durable.append(session, say(str(n)), expected_n=n)
        finally:
            done.set()
    assert [future.result() for future in syncing] == [None, None]
    assert durable.now(session).n == 100


def test_an_imported_session_keeps_its_header_and_its_times(durable: Harness) -> None:
    source = Source(created_at=1_500_000_000_123, title="Ölwechsel", origin={"from": "elsewhere", "n": [1, None]})
    session = durable.store.create_session(durable.owner.id, "old", 1000, source=source)
    assert (session.created_at, session.updated_at) == (source.created_at,) * 2
    assert session.created_mtime >= START
    durable.append(session, say("one"), say("two"), time=[1_500_000_001_000, 1_500_000_000_500])
    for _ in range(2):
        head = wait(durable.store.head, session.session_id)
        assert head is not None
        header = head.header
        assert (header.created_at, header.title, header.origin) == (source.created_at, source.title, source.origin)
        assert [row.time for row in durable.store.rows(session.id)] == [1_500_000_001_000, 1_500_000_000_500]
        assert durable.now(session).updated_at == 1_500_000_000_500
        durable.reopen()
