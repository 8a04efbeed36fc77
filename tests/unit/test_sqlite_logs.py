"""How the sqlite store keeps logs: rows that grow and join, ranges across them, branches, removal (schema.sql)."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from backend.errors import StoreFailed
from backend.rows import Append, Line, Session
from backend.sqlite import SqliteStore, index, logs, pending, rows, segments
from tests.contract.harness import Harness, cd, event, raws, say


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """A store whose rows are small, so that a few lines make many of them, and in which no line waits."""
    monkeypatch.setattr(pending, "LIMIT", 0)
    monkeypatch.setattr(segments, "ROW_LIMIT", 200)
    monkeypatch.setattr(segments, "WINDOW", 3000)
    return Harness("sqlite", tmp_path)


def select(at: Harness, sql: str, *values: object) -> list[Any]:
    assert isinstance(at.store, SqliteStore)
    return at.store._database.all(sql, *values)


def row_sizes(at: Harness, log: int) -> list[int]:
    sql = f"SELECT {logs._SIZE} FROM segment WHERE log = ? ORDER BY n"
    return [size for [size] in select(at, sql, log)]


def mixed(count: int) -> list[Line]:
    """Lines of both streams, of growing length."""
    return [say("m" * n) if n % 3 else event("mark", name="turn-skip", data={"reason": "e" * n}) for n in range(count)]


def fill(at: Harness, name: str, lines: list[Line]) -> Session:
    """A session to which the lines were appended one by one."""
    session = at.session(name)
    for line in lines:
        at.append(session, line)
    return session


def test_a_row_grows_to_its_limit_and_rows_of_a_window_become_one(at: Harness) -> None:
    session = fill(at, "s", [say("x" * 20)] * 240)

    *joined, last = row_sizes(at, session.id)
    assert len(joined) < 40
    assert all(size <= segments.WINDOW for size in joined)
    assert last <= segments.ROW_LIMIT


def test_a_big_line_is_a_row_of_its_own(at: Harness) -> None:
    session = fill(at, "s", [say("a"), say("b" * 5000), say("c")])

    assert [size > segments.WINDOW for size in row_sizes(at, session.id)] == [False, True, False]


def test_an_append_of_many_lines_is_cut_into_rows(at: Harness) -> None:
    session = at.session("s")

    at.append(session, *mixed(100))

    assert max(row_sizes(at, session.id)) <= segments.WINDOW
    assert at.stream(session, "messages") == raws([line for line in mixed(100) if line.stream == "messages"])


@pytest.mark.parametrize("stream", ["messages", "events"])
def test_every_range_reads_the_same_bytes(at: Harness, stream: str) -> None:
    lines = mixed(60)
    session = fill(at, "s", lines)
    content = raws([line for line in lines if line.stream == stream])

    for start in range(0, len(content) + 2):
        for size in (1, 7, 300, len(content)):
            assert at.store.read_stream(session.id, stream, start, size) == content[start : start + size]  # type: ignore[arg-type]


def test_ranges_read_the_same_from_remembered_rows(at: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_WORTH_KEEPING", 1)
    monkeypatch.setattr(logs, "RECENT_BYTES", 2500)
    lines = [say("m" * (n % 50)) for n in range(100)]
    session = fill(at, "s", lines)
    content = raws(lines)

    for size in (1, 50, 333):
        pieces = [at.store.read_stream(session.id, "messages", offset, size) for offset in range(0, len(content), size)]
        assert b"".join(pieces) == content


def test_every_range_of_entries_is_read(at: Harness) -> None:
    lines = mixed(40)
    session = fill(at, "s", lines)

    for start in range(len(lines) + 1):
        for limit in (0, 1, 5, 100):
            found = at.store.rows(session.id, start, limit)
            assert [row.n for row in found] == list(range(start, min(start + limit, len(lines))))
            assert [row.raw for row in found] == [line.raw for line in lines[start : start + limit]]


def test_a_branch_at_every_entry_holds_that_prefix(at: Harness) -> None:
    lines = [*mixed(20), say("hello", "assistant"), cd("/work"), *mixed(10)]
    session = fill(at, "s", lines)

    for n in range(len(lines) + 1):
        child = at.store.branch_session(session.id, n, f"c{n}")
        assert [row.raw for row in at.store.rows(child.id)] == [line.raw for line in lines[:n]]
        assert at.stream(child, "messages") == raws([line for line in lines[:n] if line.stream == "messages"])
        assert at.store.latest(child.id) == (b"hello\n" if n > 20 else b"")
        assert child.cwd == ("/work" if n > 21 else "/")


def test_a_branch_shares_rows_and_adds_none(at: Harness) -> None:
    session = fill(at, "s", mixed(40))

    child = at.store.branch_session(session.id, 35, "child")

    assert row_sizes(at, child.id) == []


def test_a_branch_of_a_branch_leads_to_the_log_that_holds_its_last_entry(at: Harness) -> None:
    session = fill(at, "s", mixed(40))
    child = at.store.branch_session(session.id, 30, "child")

    early = at.store.branch_session(child.id, 10, "early")
    empty = at.store.branch_session(child.id, 0, "empty")

    parents = dict(select(at, "SELECT id, parent FROM log"))
    assert (parents[child.id], parents[early.id], parents[empty.id]) == (session.id, session.id, None)


def test_branches_of_branches_go_on_by_themselves(at: Harness) -> None:
    held = {"s": mixed(30)}
    session = fill(at, "s", held["s"])
    for depth in range(6):
        name = f"c{depth}"
        parent = list(held.values())[-1]
        keep = len(parent) - 5
        session = at.store.branch_session(session.id, keep, name)
        added = [say(f"{name} {n}" * 10) for n in range(12)]
        for line in added:
            at.append(session, line)
        held[name] = parent[:keep] + added

    for name, lines in held.items():
        found = at.store.session(at.owner.id, name)
        assert found is not None
        assert [row.raw for row in at.store.rows(found.id)] == [line.raw for line in lines]
        assert at.stream(found, "messages") == raws([line for line in lines if line.stream == "messages"])


def sweep_all(at: Harness) -> None:
    assert isinstance(at.store, SqliteStore)
    at.store.maintain()


def test_a_deleted_session_leaves_nothing(at: Harness) -> None:
    session = fill(at, "s", mixed(40))
    at.store.write_snapshot(session.id, "AGENTS.md", b"x")
    at.store.set_mapping(at.owner.id, "by-hash", "h", "s")

    at.store.delete_session(session.id)
    sweep_all(at)

    for table in ("session", "log", "segment", "snapshot", "mapping", "unused_log"):
        assert select(at, f"SELECT count(*) FROM {table}") == [(0,)]


def test_a_deleted_parent_keeps_only_what_its_children_hold(at: Harness) -> None:
    lines = mixed(40)
    session = fill(at, "s", lines)
    child = at.store.branch_session(session.id, 17, "child")
    grandchild = at.store.branch_session(child.id, 9, "grandchild")

    at.store.delete_session(session.id)
    sweep_all(at)

    kept = [row.raw for row in at.store.rows(child.id)]
    assert kept == [line.raw for line in lines[:17]]
    assert sum(row_sizes(at, session.id)) == segments.packed_size(lines[:17])

    at.store.delete_session(child.id)
    sweep_all(at)

    assert [row.raw for row in at.store.rows(grandchild.id)] == [line.raw for line in lines[:9]]
    assert sum(row_sizes(at, session.id)) == segments.packed_size(lines[:9])

    at.store.delete_session(grandchild.id)
    sweep_all(at)

    assert select(at, "SELECT count(*) FROM log") == [(0,)]


def test_a_chain_without_sessions_goes_away_with_its_last_child(at: Harness) -> None:
    first = fill(at, "a", mixed(10))
    second = at.store.branch_session(first.id, 10, "b")
    at.append(second, *mixed(3))
    third = at.store.branch_session(second.id, 12, "c")
    for session in (first, second):
        at.store.delete_session(session.id)
    sweep_all(at)

    at.store.delete_session(third.id)
    sweep_all(at)

    assert select(at, "SELECT count(*) FROM log") == [(0,)]
    assert select(at, "SELECT count(*) FROM segment") == [(0,)]


def test_a_big_deletion_takes_small_steps(at: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SWEEP_BYTES", 1500)
    session = fill(at, "s", mixed(100))
    before = len(row_sizes(at, session.id))

    at.store.delete_session(session.id)

    assert 0 < len(row_sizes(at, session.id)) < before
    sweep_all(at)
    assert row_sizes(at, session.id) == []


def test_the_index_and_a_listing_of_ten_thousand_sessions_page_by_id(tmp_path: Path) -> None:
    at = Harness("sqlite", tmp_path)
    made = [at.session(f"s{n:05}").id for n in range(10_000)]

    pages, after = [], 0
    while page := at.store.sessions(at.owner.id, after, 999):
        pages.append([session.id for session in page])
        after = page[-1].id

    assert [id for page in pages for id in page] == made
    assert {len(page) for page in pages[:-1]} == {999}
    assert len(at.listed()) == 10_000


@pytest.mark.parametrize(
    "sql",
    [
        rows.SESSION_BY_NAME.replace("?", "1"),
        rows.LIVE_SESSIONS.replace("?", "1"),
        rows.ARCHIVED_SESSION.replace("?", "1"),
        rows.ARCHIVED_SESSIONS.replace("?", "1"),
        rows.TOP.replace("?", "1"),
        index._HOLDER.replace("?", "1"),
        "SELECT id FROM session ORDER BY created_at DESC, session_id LIMIT 10",
        "SELECT id FROM session WHERE parent = 'x' ORDER BY created_at DESC, session_id LIMIT 10",
        "SELECT id FROM mapping WHERE owner = 1 AND kind = 'by-hash' AND id > 5 ORDER BY id LIMIT 10",
        "SELECT 1 FROM session WHERE owner = 1 AND archive IS NULL LIMIT 1",
        logs._BYTES["messages"].replace("?", "1"),
        logs._BYTES["events"].replace("?", "1"),
        logs._ROWS.replace("?", "1"),
        logs._WEIGHTS.replace("?", "1"),
        "SELECT max(base_n) FROM log WHERE parent = 1",
    ],
)
def test_queries_search_an_index_and_sort_nothing(at: Harness, sql: str) -> None:
    assert isinstance(at.store, SqliteStore)
    connection: sqlite3.Connection = at.store._database.connection

    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]

    assert not [step for step in plan if "TEMP B-TREE" in step or (step.startswith("SCAN") and "USING" not in step)]


def test_appends_that_come_together_are_refused_alone(at: Harness) -> None:
    a, b = at.session("a"), at.session("b")

    results = at.store.append(
        [Append(a.id, [say("1")]), Append(b.id, [say("2")], 7), Append(999, [say("3")]), Append(a.id, [say("4")], 1)]
    )

    assert [type(result).__name__ for result in results] == [
        "Appended",
        "SessionConflictError",
        "Missing",
        "Appended",
    ]
    assert [row.raw for row in at.store.rows(a.id)] == [say("1").raw, say("4").raw]
    assert at.now(b).n == 0


def test_a_commit_that_fails_midway_changes_nothing_in_memory_or_on_disk(at: Harness) -> None:
    a, b = fill(at, "a", [say("1")]), fill(at, "b", [say("2")])
    before = (at.now(a), at.now(b), at.owner_now(), at.listed(), at.mapped("by-cwd"))
    assert isinstance(at.store, SqliteStore)
    at.store._database.connection.execute(
        "CREATE TEMP TRIGGER fails BEFORE INSERT ON mapping BEGIN SELECT raise(ABORT, 'broken'); END"
    )

    with pytest.raises(StoreFailed, match="broken"):
        at.append(a, say("3"), cd("/x"))
    assert (at.now(a), at.now(b), at.owner_now(), at.listed(), at.mapped("by-cwd")) == before
    assert "broken" in (at.store.status().failure or "")

    at.reopen()
    assert (at.now(a), at.now(b), at.owner_now(), at.listed(), at.mapped("by-cwd")) == before
    at.append(a, say("3"), cd("/x"))
    assert at.stream(a, "messages") == raws([say("1"), say("3")])
    assert at.listed() == ["a", "b"]


def test_one_failing_append_of_many_leaves_the_others(at: Harness) -> None:
    a, b = at.session("a"), at.session("b")
    assert isinstance(at.store, SqliteStore)
    at.store._database.connection.execute(
        "CREATE TEMP TRIGGER fails BEFORE INSERT ON mapping BEGIN SELECT raise(ABORT, 'broken'); END"
    )

    results = at.store.append([Append(a.id, [cd("/x")]), Append(b.id, [say("1")])])

    assert [type(result).__name__ for result in results] == ["StoreFailed", "Appended"]
    assert (at.now(a).n, at.now(b).n) == (0, 1)
