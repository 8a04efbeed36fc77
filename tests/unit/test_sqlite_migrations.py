"""A store of the first format is brought to the present one, and whoever is killed at it leaves the old or the new."""

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend.sqlite import SqliteStore, opening
from backend.sqlite.database import connect
from tests.contract.harness import Harness, cd, event, say

FORMAT_1 = Path(__file__).with_name("format_1.sql").read_text(encoding="utf-8")
START = {"id": "r1", "client_id": "c1", "cwd": "/", "scope": "private"}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The directory of a store of format 1, with what such a store can hold."""
    at = Harness("sqlite", tmp_path)
    one, two = at.session("one"), at.session("two")
    at.append(one, say("hello"), cd("/srv"), say("hi", "assistant"))
    at.append(two, say("there"), event("start", run="r1", **START), event("done", run="r1", status="ok"))
    at.append(two, *(say("x" * 1000) for _ in range(300)))
    at.store.branch_session(one.id, 2, "twig")
    at.store.archive_session(at.session("old").id, at.archive().id)
    at.store.close()
    store = tmp_path / "format-1"
    store.mkdir(mode=0o700)
    _downgrade(tmp_path / "store/ctxfs.db", store / "ctxfs.db")
    return store


def _downgrade(present: Path, target: Path) -> None:
    with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as database:
        database.executescript(FORMAT_1)
        tables = [name for [name] in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        database.execute("ATTACH ? AS present", (str(present),))
        assert database.execute("SELECT count(*) FROM present.pending").fetchone() == (0,)
        for table in tables:
            database.execute(f"DELETE FROM main.{table}")
            database.execute(f"INSERT INTO main.{table} SELECT * FROM present.{table}")
        database.execute("DETACH present")
        database.execute("PRAGMA journal_mode = WAL").fetchall()


def content(directory: Path) -> dict[str, Any]:
    """What a store says, once it is opened; it must be sound."""
    with contextlib.closing(SqliteStore.open_now(directory)) as store:
        assert [*store.integrity(), *store.drift()] == []
        sessions = store.sessions(1)
        return {session.name: (session, store.rows(session.id, 0, 1000)) for session in sessions} | {
            "list": store.list_content(1),
            "by-cwd": store.mappings(1, "by-cwd"),
            "runs": [store.run_lines(session.id, "r1") for session in sessions],
        }


def version(directory: Path) -> int:
    """As an older program reads it."""
    return int.from_bytes((directory / "ctxfs.db").read_bytes()[60:64], "big")


def test_a_store_of_the_first_format_says_what_it_said(old: Path, tmp_path: Path) -> None:
    assert version(old) == 1
    assert content(old) == content(tmp_path / "store")
    assert version(old) == opening.VERSION


def killed_at_each_statement(old: Path, monkeypatch: pytest.MonkeyPatch, left: Callable[[], None]) -> None:
    """Opens a store; ``left`` is called before each statement, when its directory is what a killed process leaves."""

    def traced(database: Path, *how: str) -> sqlite3.Connection:
        connection = connect(database, *how)
        connection.set_trace_callback(lambda _: left())
        return connection

    monkeypatch.setattr(opening, "connect", traced)
    with contextlib.closing(SqliteStore.open_now(old)):
        left()
    monkeypatch.undo()


def test_whoever_is_killed_leaves_an_older_store_or_the_new_one(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Path] = []

    def keep() -> None:
        copies.append(tmp_path / f"killed-{len(copies)}")
        shutil.copytree(old, copies[-1])

    killed_at_each_statement(old, monkeypatch, keep)
    expected = content(tmp_path / "store")
    versions = [version(copy) for copy in copies]
    assert set(versions) == set(range(1, opening.VERSION + 1))
    assert versions == sorted(versions)
    for number, copy in enumerate(copies):
        assert content(copy) == expected, f"killed before statement {number}"


def test_a_log_that_was_cut_anywhere_is_an_older_store_or_the_new_one(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written of a transaction that was not committed counts for nothing."""
    logs: dict[int, Path] = {}

    def keep() -> None:
        wal = old / "ctxfs.db-wal"
        if wal.exists() and wal.stat().st_size not in logs:
            logs[wal.stat().st_size] = tmp_path / f"log-{len(logs)}"
            shutil.copytree(old, logs[wal.stat().st_size])

    killed_at_each_statement(old, monkeypatch, keep)
    expected = content(tmp_path / "store")
    longest = logs[max(logs)]
    frame = 24 + 4096
    assert max(logs) > 5 * frame
    for frames in range((max(logs) - 32) // frame + 1):
        for size in (32 + frames * frame, 32 + frames * frame + 2000):
            copy = tmp_path / f"cut-{size}"
            shutil.copytree(longest, copy)
            with (copy / "ctxfs.db-wal").open("r+b") as file:
                file.truncate(min(size, max(logs)))
            assert content(copy) == expected, f"the log ends at byte {size}"
            shutil.rmtree(copy)
