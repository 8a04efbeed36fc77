"""Lines that wait in the sqlite store (``pending`` in schema.sql): nobody can tell them from those that were merged."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.errors import SessionAlreadyExistsError, StoreCorrupt, StoreFailed
from backend.lines import meta_line, state_line
from backend.rows import Append, Line, Session
from backend.sqlite import SqliteStore, pending
from tests.contract.harness import Harness, cd, event, raws, say

NAMES = ("a", "b", "c", "d")
LINES: tuple[Line, ...] = (
    say("hello"),
    say("an answer", "assistant"),
    say("", "assistant"),
    say("x" * 700),
    event("mark", name="turn-skip", data={"reason": "r"}),
    state_line("idle", "active"),
    meta_line({"client": "c", "scope": "private"}),
    cd("/work"),
    cd("/else"),
)


@pytest.fixture
def at(tmp_path: Path) -> Harness:
    return Harness("sqlite", tmp_path)


def opened(at: Harness) -> SqliteStore:
    assert isinstance(at.store, SqliteStore)
    return at.store


def commits_waiting(at: Harness) -> int:
    [count] = opened(at)._database.one("SELECT count(*) FROM pending")
    return int(count)


def seen(at: Harness) -> list[object]:
    """Everything that the lines of sessions show in files."""
    store, owner = at.store, at.owner.id
    sessions = list(store.sessions(owner))
    return [
        [at.owner_now(), store.owner("home/1000", "agent", "coder"), list(store.owners("home/1000", "agent"))],
        [at.listed(), list(store.listing(owner)), at.mapped("by-cwd")],
        [
            sessions,
            [store.session(owner, row.name) for row in sessions],
            [store.find(row.session_id) for row in sessions],
        ],
        [(at.stream(row, "messages"), at.stream(row, "events"), store.latest(row.id)) for row in sessions],
        [(list(store.rows(row.id)), list(store.rows(row.id, row.n // 2, 2))) for row in sessions],
    ]


def session(at: Harness, name: str) -> Session:
    found = at.store.session(at.owner.id, name)
    return found or at.store.create_session(at.owner.id, name, 1000, f"id of {name}")


def append(*batch: tuple[str, list[Line]]) -> Callable[[Harness], object]:
    return lambda at: at.store.append([Append(session(at, name).id, lines) for name, lines in batch])


def branch(name: str, n: int) -> Callable[[Harness], object]:
    def make(at: Harness) -> None:
        parent = session(at, name)
        with suppress(SessionAlreadyExistsError):
            at.store.branch_session(parent.id, min(n, parent.n), f"{name}{n}", f"child {n} of {name}")

    return make


def delete(name: str) -> Callable[[Harness], object]:
    return lambda at: at.store.delete_session(session(at, name).id)


def fail_to_create(at: Harness) -> None:
    taken = session(at, "a").name
    with pytest.raises(SessionAlreadyExistsError):
        at.store.create_session(at.owner.id, taken, 1000)


names, some_lines = st.sampled_from(NAMES), st.lists(st.sampled_from(LINES), min_size=1, max_size=4)
appends = st.lists(st.tuples(names, some_lines), min_size=1, max_size=5).map(lambda batch: append(*batch))
others = st.one_of(
    st.builds(branch, names, st.integers(0, 5)),
    st.builds(delete, names),
    st.sampled_from((fail_to_create, Harness.reopen, seen, lambda at: at.clock.pass_seconds(1))),
)


def told(directory: Path, limit: int, script: list[Callable[[Harness], object]], patch: pytest.MonkeyPatch) -> object:
    """What everybody sees after ``script``, in a store where so much may wait; the same after a restart."""
    patch.setattr(pending, "LIMIT", limit)
    shutil.rmtree(directory, ignore_errors=True)
    at = Harness("sqlite", directory)
    try:
        for step in script:
            step(at)
        before = seen(at)
        at.reopen()
        assert seen(at) == before
    finally:
        at.store.close()
    return before


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(script=st.lists(st.one_of(appends, appends, others), max_size=25))
def test_a_store_that_lets_lines_wait_shows_what_one_that_merges_each_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: list[Callable[[Harness], object]]
) -> None:
    merged = told(tmp_path / "merged", 0, script, monkeypatch)

    for limit in (5_000, 1 << 20):
        assert told(tmp_path / "waiting", limit, script, monkeypatch) == merged


def test_small_commits_wait_and_others_are_merged(at: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "LIMIT", 10_000)
    counts = []

    append(("a", [say("1")]), ("b", [say("2")]))(at)
    counts.append(commits_waiting(at))
    append(("a", [say("3")]))(at)
    counts.append(commits_waiting(at))
    append(("a", [cd("/x")]))(at)
    counts.append(commits_waiting(at))
    append(("a", [say("4")]))(at)
    append(("a", [say("x" * 40_000)]))(at)
    counts.append(commits_waiting(at))
    append(("a", [say("5")]))(at)
    session(at, "another")
    counts.append(commits_waiting(at))

    assert counts == [1, 2, 0, 0, 0]


def test_what_waits_is_bounded(at: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "LIMIT", 10_000)
    waiting = []
    for _ in range(40):
        append(("a", [say("x" * 1000)]))(at)
        waiting.append(commits_waiting(at))

    assert 0 in waiting
    assert max(waiting) < 10


def test_every_range_over_merged_and_waiting_lines_is_read(at: Harness) -> None:
    one = session(at, "a")
    texts = [say(f"{n}") for n in range(6)]
    append(("a", texts[:3]))(at)
    session(at, "b")
    append(("a", texts[3:]))(at)
    content = raws(texts)

    for start in range(len(content) + 2):
        for size in (1, 40, len(content)):
            assert at.store.read_stream(one.id, "messages", start, size) == content[start : start + size]
    for n in range(8):
        for limit in (0, 1, 3, 100):
            assert [row.raw for row in at.store.rows(one.id, n, limit)] == [text.raw for text in texts[n : n + limit]]


def test_lines_that_wait_survive_the_death_of_the_process(at: Harness, tmp_path: Path) -> None:
    append(("a", [say("1"), say("2", "assistant")]), ("b", [state_line("idle", "active")]))(at)
    append(("b", [say("3")]))(at)
    assert commits_waiting(at) == 2
    before = seen(at)

    copy = tmp_path / "copy" / "store"
    shutil.copytree(tmp_path / "store", copy)
    at._directory = copy.parent
    at.reopen()

    assert seen(at) == before


@pytest.mark.parametrize("failing", ["INSERT ON pending", "UPDATE ON session"])
def test_a_commit_that_fails_leaves_the_lines_that_wait(
    at: Harness, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    append(("a", [say("1"), say("2", "assistant")]), ("b", [say("3")]))(at)
    before = seen(at)
    connection = opened(at)._database.connection
    connection.execute(f"CREATE TEMP TRIGGER fails BEFORE {failing} BEGIN SELECT raise(ABORT, 'broken'); END")
    if "session" in failing:
        monkeypatch.setattr(pending, "LIMIT", 0)

    [result] = at.store.append([Append(session(at, "b").id, [say("4")])])
    assert isinstance(result, StoreFailed)
    assert seen(at) == before

    connection.execute("DROP TRIGGER fails")
    append(("b", [say("4")]))(at)
    assert at.stream(session(at, "b"), "messages") == raws([say("3"), say("4")])
    assert at.listed() == ["b", "a"]


def test_a_change_that_cannot_merge_what_waits_is_refused(at: Harness) -> None:
    append(("a", [say("1")]))(at)
    before = seen(at)
    connection = opened(at)._database.connection
    connection.execute("CREATE TEMP TRIGGER fails BEFORE UPDATE ON session BEGIN SELECT raise(ABORT, 'broken'); END")

    with pytest.raises(StoreFailed, match="broken"):
        session(at, "b")

    assert seen(at) == before


@pytest.mark.parametrize("data", [b"", b"\x92\x01\x90\x00", b"\x92\x01\x91\x94\x63\x01\xc4\x00\x90"])
def test_rows_that_no_store_wrote_are_refused_at_opening(at: Harness, data: bytes) -> None:
    append(("a", [say("1")]))(at)
    opened(at)._database.connection.execute("UPDATE pending SET data = ?", (data,))

    at.store.close()
    with pytest.raises(StoreCorrupt, match="restore a backup"):
        at.store = at._open()
