"""Sessions as directories of files: creation, appends, streams, snapshots (``SessionFiles``)."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from backend.errors import (
    InvalidValue,
    Missing,
    SessionAlreadyExistsError,
    SessionArchived,
    SessionConflictError,
)
from backend.lines import meta_line, state_line
from backend.rows import Append, Appended
from tests.contract.harness import START, Harness, cd, event, raws, say


def test_a_new_session_is_empty_and_idle(at: Harness) -> None:
    session = at.session("one")
    assert at.store.session(at.owner.id, "one") == session == at.now(session)
    assert (session.n, session.state, session.cwd, session.meta) == (
        0,
        "idle",
        "/",
        '{"client":"ctx","scope":"private"}',
    )
    assert (session.messages_size, session.events_size, session.latest_size, session.latest_n) == (0, 0, 0, None)
    assert (session.uid, session.scope, session.archive, session.fault) == (1000, "private", None, None)
    assert session.created_at == session.updated_at == START // 1_000_000
    assert min(session.created_mtime, session.updated_mtime, session.messages_mtime, session.meta_mtime) >= START
    assert at.stream(session, "messages") == at.stream(session, "events") == at.store.latest(session.id) == b""


def test_a_listing_is_the_sessions_with_fewer_columns(at: Harness) -> None:
    for name in ("one", "two", "three"):
        at.session(name)
    at.clock.pass_seconds(5)
    at.append(at.session("four"), say("x"))
    sessions = at.store.sessions(at.owner.id)
    assert at.store.listing(at.owner.id) == [(row.id, row.name, row.uid, row.updated_at) for row in sessions]
    assert [name for _, name, *_ in at.store.listing(at.owner.id, sessions[0].id, 2)] == ["two", "three"]


def test_a_session_in_a_shared_place_has_its_scope(at: Harness) -> None:
    at.store.add_space("shared/team", 0, 500, 0o2770)
    owner = at.store.add_owner("shared/team", "agent", "coder", 0, 500)
    session = at.session("one", owner)
    assert (session.scope, session.meta) == ("shared", '{"client":"ctx","scope":"shared"}')


def test_a_name_and_an_id_are_given_once(at: Harness) -> None:
    at.store.create_session(at.owner.id, "one", 1000, "id-1")
    before = at.store.sessions(at.owner.id)
    for name, session_id in (("one", None), ("one", "id-2"), ("two", "id-1")):
        with pytest.raises(SessionAlreadyExistsError):
            at.store.create_session(at.owner.id, name, 1000, session_id)
    assert at.store.sessions(at.owner.id) == before


def test_nothing_is_made_below_what_is_not_there(at: Harness) -> None:
    for call in (
        lambda: at.store.create_session(999_999, "one", 1000),
        lambda: at.store.branch_session(999_999, 0, "one"),
        lambda: at.store.set_current(999_999, "one"),
        lambda: at.store.write_snapshot(999_999, "AGENTS.md", b"x"),
        lambda: at.store.set_mapping(999_999, "by-hash", "k", "one"),
    ):
        with pytest.raises(Missing):
            call()


def test_an_appended_line_is_served_byte_for_byte(at: Harness) -> None:
    session = at.session("one")
    lines = [say("héllo"), event("delta", run="r", text="x"), say("日本", "assistant")]
    appended = at.append(session, *lines)
    assert at.now(session) == appended.session
    assert appended.session.n == 3
    assert at.stream(session, "messages") == raws([lines[0], lines[2]])
    assert at.stream(session, "events") == raws([lines[1]])
    assert [(row.n, row.kind, row.stream, row.raw) for row in at.store.rows(session.id)] == [
        (0, "message", "messages", lines[0].raw),
        (1, "mark", "events", lines[1].raw),
        (2, "message", "messages", lines[2].raw),
    ]


def test_any_range_of_a_stream_is_read(at: Harness) -> None:
    session = at.session("one")
    for text in ("a" * 10, "b" * 1000, "", "c"):
        at.append(session, say(text), event("delta", run="r", text=text))
    whole = at.stream(session, "messages")
    for offset in (*range(0, len(whole) + 3, 61), len(whole) - 1, len(whole), len(whole) + 100):
        for size in (0, 1, 60, 10_000):
            assert at.store.read_stream(session.id, "messages", offset, size) == whole[offset : offset + size]


def test_rows_come_in_pages(at: Harness) -> None:
    session = at.session("one")
    at.append(session, *(say(str(n)) for n in range(25)))
    assert [row.n for row in at.store.rows(session.id, 10, 5)] == [10, 11, 12, 13, 14]
    assert [row.n for row in at.store.rows(session.id, 23)] == [23, 24]
    assert at.store.rows(session.id, 25) == []


def test_small_files_follow_the_log(at: Harness) -> None:
    session = at.session("one")
    appended = at.append(
        session,
        say("no text of an assistant"),
        say("the text", "assistant"),
        state_line("idle", "active"),
        cd("/work"),
        meta_line({"scope": "private", "client": "x"}),
    )
    now = appended.session
    assert (now.state, now.cwd, now.meta) == ("active", "/work", '{"client":"x","scope":"private"}')
    assert (now.latest_n, now.latest_size, at.store.latest(session.id)) == (1, 9, b"the text\n")
    assert appended.files == {"messages.jsonl", "events.jsonl", "latest.md", "state", "cwd", "meta.json"}


def test_the_last_of_two_values_in_one_append_counts(at: Harness) -> None:
    session = at.session("one")
    now = at.append(session, say("one", "assistant"), say("two!", "assistant"), cd("/a"), cd("/b")).session
    assert (now.cwd, at.store.latest(session.id), now.latest_size) == ("/b", b"two!\n", 5)


def test_an_assistant_message_without_text_leaves_latest(at: Harness) -> None:
    session = at.session("one")
    at.append(session, say("text", "assistant"))
    appended = at.append(session, say("", "assistant"))
    assert "latest.md" not in appended.files
    assert at.store.latest(session.id) == b"text\n"


def test_a_message_changes_no_other_file(at: Harness) -> None:
    session = at.session("one")
    before = at.now(session)
    appended = at.append(session, say("x"))
    after = appended.session
    assert appended.files == {"messages.jsonl"}
    assert after.messages_mtime > before.messages_mtime
    for field in ("events_mtime", "state_mtime", "cwd_mtime", "meta_mtime", "latest_mtime", "created_mtime"):
        assert getattr(after, field) == getattr(before, field), field


def test_a_value_recorded_again_changes_only_the_log(at: Harness) -> None:
    session = at.session("one")
    at.append(session, cd("/work"))
    assert at.append(session, cd("/work")).files == {"events.jsonl"}


@pytest.mark.parametrize("step", [0, -3600 * 10**9])
def test_an_mtime_rises_with_every_change_whatever_the_clock_does(at: Harness, step: int) -> None:
    session = at.session("one")
    last = at.now(session)
    for text in "abc":
        at.clock.now += step
        now = at.append(session, say(text, "assistant"), cd(f"/{text}")).session
        for field in ("messages_mtime", "events_mtime", "latest_mtime", "cwd_mtime"):
            assert getattr(now, field) > getattr(last, field), field
        last = now


def test_no_entry_is_later_than_the_mtime_that_it_gave(at: Harness) -> None:
    """Of a file that the last entry did not change, the mtime is told from the entries' times."""
    at.clock.step = 700_000
    session = at.session("one")
    for _ in range(20):
        now = at.append(session, cd("/work")).session
        assert now.updated_at * 1_000_000 <= now.events_mtime


def test_updated_at_is_the_time_of_the_last_entry(at: Harness) -> None:
    session = at.session("one")
    at.clock.pass_seconds(5)
    appended = at.append(session, say("x"))
    assert appended.session.updated_at == at.clock.now // 1_000_000
    assert "updated_at" in appended.files
    at.append(session, say("y"), time=1234)
    assert at.now(session).updated_at == 1234
    at.append(session, say("y"), say("z"), time=[5, 6])
    assert [row.time for row in at.store.rows(session.id)] == [at.clock.now // 1_000_000, 1234, 5, 6]


def test_an_append_without_lines_changes_nothing(at: Harness) -> None:
    session = at.session("one")
    before, listed = at.now(session), at.owner_now()
    assert at.append(session) == Appended(before)
    assert (at.now(session), at.owner_now()) == (before, listed)


def test_a_group_is_answered_one_by_one(at: Harness) -> None:
    one, two = at.session("one"), at.session("two")
    results = at.store.append(
        [
            Append(one.id, [say("a")]),
            Append(two.id, [say("b")], expected_n=7),
            Append(999_999, [say("c")]),
            Append(two.id, [say("d")]),
            Append(one.id, [say("e")], expected_n=1),
        ]
    )
    assert [type(result) for result in results] == [Appended, SessionConflictError, Missing, Appended, Appended]
    assert [row.raw for row in at.store.rows(one.id)] == [say("a").raw, say("e").raw]
    assert [row.raw for row in at.store.rows(two.id)] == [say("d").raw]
    refused = results[1]
    assert isinstance(refused, SessionConflictError)
    assert (refused.session_id, refused.expected_n, refused.actual_n) == (two.session_id, 7, 0)


def test_an_append_is_all_or_nothing(at: Harness) -> None:
    session = at.session("one")
    at.append(session, say("a"))
    before = at.now(session)
    cut = {"summary": [], "reason": "manual"}
    with pytest.raises(InvalidValue):
        at.append(session, say("b"), event("cut", before=3, **cut))
    assert at.now(session) == before
    assert len(at.store.rows(session.id)) == 1
    assert at.append(session, say("b"), event("cut", before=2, **cut)).session.n == 3


def test_sequences_of_the_store_rise_with_every_append(at: Harness) -> None:
    sessions = [at.session(name) for name in ("one", "two")]
    seen = [session.seq for session in sessions]
    for _ in range(3):
        seen += [at.append(session, say("x")).session.seq for session in sessions]
    assert seen == sorted(set(seen))


def test_paging_by_id_shows_what_stays_exactly_once_under_churn(at: Harness) -> None:
    for n in range(30):
        at.session(f"s{n}")
    seen: list[str] = []
    after = 0
    while page := at.store.sessions(at.owner.id, after, 4):
        seen += [session.name for session in page]
        after = page[-1].id
        at.append(page[-1], say("moves to the top of the list"))
        at.store.delete_session(page[0].id)
        if len(seen) < 30:
            at.session(f"new{len(seen)}")
    assert len(seen) == len(set(seen))
    assert {f"s{n}" for n in range(30)} <= set(seen)


def test_ids_of_sessions_are_never_used_again(at: Harness) -> None:
    seen: set[int] = set()
    for _ in range(3):
        session = at.session("one")
        assert session.id not in seen
        seen.add(session.id)
        at.store.delete_session(session.id)


def test_a_deleted_session_is_gone(at: Harness) -> None:
    session = at.session("one")
    at.append(session, say("x"))
    assert at.store.delete_session(session.id).listed
    assert at.store.session_by_id(session.id) is None
    assert at.store.session(at.owner.id, "one") is None
    [refused] = at.store.append([Append(session.id, [say("x")])])
    assert isinstance(refused, Missing)
    for call in (at.store.delete_session, at.store.rows, at.store.latest):
        with pytest.raises(Missing):
            call(session.id)


def test_an_archived_session_takes_no_appends(at: Harness) -> None:
    at.session("current")
    session = at.session("one")
    at.store.archive_session(session.id, at.archive().id)
    before = at.now(session)
    with pytest.raises(SessionArchived):
        at.append(session, say("x"))
    assert at.now(session) == before


def test_a_snapshot_is_replaced_whole(at: Harness) -> None:
    session = at.session("one")
    assert at.store.snapshot(session.id, "AGENTS.md") is None
    first = at.store.write_snapshot(session.id, "AGENTS.md", b"one\n")
    assert (first.name, first.size) == ("AGENTS.md", 4)
    second = at.store.write_snapshot(session.id, "AGENTS.md", "zwei é\n".encode())
    assert second.mtime > first.mtime
    assert at.store.snapshot(session.id, "AGENTS.md") == second
    assert at.store.read_snapshot(session.id, "AGENTS.md") == "zwei é\n".encode()
    assert at.store.snapshot(session.id, "SKILLS.md") is None
    at.store.remove_snapshot(session.id, "AGENTS.md")
    assert at.store.snapshot(session.id, "AGENTS.md") is None
    for call in (at.store.read_snapshot, at.store.remove_snapshot):
        with pytest.raises(Missing):
            call(session.id, "AGENTS.md")


def test_snapshots_are_not_in_the_log(at: Harness) -> None:
    session = at.session("one")
    before = at.now(session)
    at.store.write_snapshot(session.id, "SKILLS.md", b"x" * 100_000)
    assert at.now(session) == before


def test_maintenance_beside_everything_else_changes_nothing_that_is_seen(at: Harness) -> None:
    session = at.session("one")
    lines = [say(f"line {n}" * 50) for n in range(200)]
    with ThreadPoolExecutor(1) as beside:
        rounds = [beside.submit(at.store.maintain) for _ in range(50)]
        for number, added in enumerate(lines):
            at.append(session, added)
            at.store.delete_session(at.session(f"gone{number}").id)
        assert [done.result() for done in rounds] == [None] * len(rounds)
    assert at.stream(session, "messages") == raws(lines)
    assert at.listed() == ["one"]
