"""When commits are on disk, and how long the write-ahead log gets (spec 1.3; design, Commit policy)."""

import errno
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backend.errors import StoreFailed
from backend.rows import Append
from backend.sqlite import SqliteStore, database, durability, store
from tests.contract.harness import Harness, say
from tests.loop_disk import loop_disk

BIG = say("x" * 1_000_000)


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness("sqlite", tmp_path)
    yield harness
    harness.store.close()


def opened(at: Harness) -> SqliteStore:
    assert isinstance(at.store, SqliteStore)
    return at.store


def entries(path: Path) -> int:
    """The number of entries of all sessions in the store of a harness in ``path``."""
    with closing(SqliteStore.open_now(path / "store")) as store:
        [owner] = store.owners("home/1000", "agent")
        return sum(session.n for session in store.sessions(owner.id))


def copied(at: Harness, target: Path, *names: str) -> Path:
    """A copy of files of the open store."""
    (target / "store").mkdir(parents=True)
    for name in names:
        shutil.copy(at._directory / "store" / name, target / "store" / name)
    return target


def test_what_was_synced_is_in_the_database_and_its_log(at: Harness, tmp_path: Path) -> None:
    session = at.session("s")
    for n in range(1, 31):
        at.append(session, say(f"line {n}"))
        at.store.sync()
        if n % 10 == 0:
            opened(at)._durability._checkpoint("PASSIVE" if n % 20 else "TRUNCATE")
        assert entries(copied(at, tmp_path / f"copy{n}", "ctxfs.db", "ctxfs.db-wal")) == n


def test_what_was_synced_survives_a_power_cut() -> None:
    with loop_disk(64 << 20) as disk:
        at = Harness("sqlite", disk.mountpoint)
        session = at.session("s")
        for lines in (1, 30, 300):
            at.append(session, *[say("x" * 1000)] * lines)
            at.store.sync()
            with disk.after_power_cut() as found:
                assert entries(found) == at.now(session).n
        at.store.close()


def test_what_was_synced_survives_a_power_cut_amid_checkpoints() -> None:
    with loop_disk(128 << 20) as disk:
        at = Harness("sqlite", disk.mountpoint)
        session = at.session("s")
        with beside(opened(at).maintain):
            for _ in range(4):
                at.append(session, *[BIG] * 6)
                at.append(session, say("last"))
                at.store.sync()
                with disk.after_power_cut() as found:
                    assert entries(found) == at.now(session).n
        at.store.close()


class beside:
    """``with beside(call):`` — calls it over and over in a thread; what it raised is raised at the end."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._ended = threading.Event()
        self._failures: list[Exception] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        assert self._failures == []

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._call()
        except Exception as failure:
            self._failures.append(failure)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of fdatasync calls so far, as the length of a list; the first of a test can be made to fail."""
    calls: list[int] = []
    monkeypatch.setattr("backend.sqlite.durability.os.fdatasync", calls.append)
    return calls


def test_a_sync_without_news_costs_nothing(at: Harness, syncs: list[int]) -> None:
    session = at.session("s")
    at.append(session, say("a"))
    at.store.sync()
    before = len(syncs)

    at.store.sync()
    at.store.append([Append(session.id, [])])
    at.store.append([Append(session.id, [say("refused")], expected_n=9)])
    at.store.sync()
    assert len(syncs) == before

    at.append(session, say("b"))
    at.store.sync()
    assert len(syncs) == before + 1


def test_syncs_go_on_beside_appends(at: Harness) -> None:
    session = at.session("s")

    with beside(at.store.sync), beside(opened(at).maintain):
        for n in range(200):
            at.append(session, say(f"line {n}"))

    assert at.now(session).n == 200


def test_a_failed_sync_is_trusted_again_only_after_everything_was_written_anew(
    at: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = at.session("s")
    at.append(session, say("a"))

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("backend.sqlite.durability.os.fdatasync", fail)
        with pytest.raises(StoreFailed, match="Input/output error"):
            at.store.sync()

    at.store.sync()

    assert entries(copied(at, tmp_path / "without log", "ctxfs.db")) == 1


def test_a_failed_sync_stays_failed_while_a_reader_holds_the_log(
    at: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = at.session("s")
    at.append(session, say("a"))
    opened(at)._durability._side.execute("PRAGMA busy_timeout = 10").fetchall()
    opened(at)._durability._lost = True

    with closing(sqlite3.connect(tmp_path / "store" / "ctxfs.db")) as reader:
        held = reader.execute("SELECT name FROM session")
        at.append(session, say("b"))
        with pytest.raises(StoreFailed, match="too busy"):
            at.store.sync()
        held.close()

    at.store.sync()
    assert entries(copied(at, tmp_path / "without log", "ctxfs.db")) == 2


def test_maintenance_bounds_the_log(at: Harness) -> None:
    session = at.session("s")
    for _ in range(6):
        at.append(session, *[BIG] * 10)
        opened(at).maintain()

    assert opened(at)._durability.wal_bytes() < 2 * 10_500_000
    assert (at._directory / "store" / "ctxfs.db-wal").stat().st_size < 2 * 10_500_000


def test_maintenance_ends_with_writers_at_the_gate_where_they_outrun_it(
    at: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, store = at.session("s"), opened(at)._durability
    checkpoint, modes = store._checkpoint, []
    with closing(sqlite3.connect(at._directory / "store" / "ctxfs.db")) as reader:
        # While it reads the first state, nothing later can be written back: the same as writers that are faster.
        reading = reader.execute("SELECT name FROM session")
        at.append(session, *[BIG] * 20)

        def outrun(mode: str) -> bool:
            modes.append(mode)
            if mode == "RESTART":
                reading.close()
            return checkpoint(mode)

        monkeypatch.setattr(store, "_checkpoint", outrun)
        opened(at).maintain()
        at.append(session, say("begins the log anew"))

    assert modes == ["PASSIVE"] * durability.PASSES + ["RESTART"]
    assert store.wal_bytes() < 100_000


def test_a_short_log_is_left_alone(at: Harness, tmp_path: Path) -> None:
    at.append(at.session("s"), say("a"))
    before = (at._directory / "store" / "ctxfs.db").read_bytes()

    opened(at).maintain()

    assert (at._directory / "store" / "ctxfs.db").read_bytes() == before


def test_the_length_of_the_log_is_that_of_its_present_round(at: Harness) -> None:
    session = at.session("s")
    store = opened(at)._durability
    for lines in (50, 3, 20, 1):
        at.append(session, *[say("x" * 3000)] * lines)
        _, frames, _ = store._side.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        assert store.wal_bytes() == frames * store._frame_size
        store._checkpoint("RESTART")


def test_closing_leaves_nothing_but_the_database(at: Harness) -> None:
    at.append(at.session("s"), say("a"))

    at.store.close()

    assert {file.name for file in (at._directory / "store").iterdir()} == {"ctxfs.db", "lock"}
    at.store = at._open()


def test_a_busy_database_is_said_to_have_failed(at: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = at.session("s")
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.01)
    at.reopen()

    with closing(sqlite3.connect(tmp_path / "store" / "ctxfs.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        [result] = at.store.append([Append(session.id, [say("a")])])
        assert isinstance(result, StoreFailed)
        assert "SQLITE_BUSY" in (at.store.status().failure or "")
        writer.execute("ROLLBACK")

    at.append(session, say("a"))
    assert at.store.status().failure is None


@pytest.mark.parametrize(
    "error", [RuntimeError("planted"), MemoryError(), KeyboardInterrupt(), sqlite3.Error("planted")]
)
def test_a_sweep_that_fails_keeps_no_writer_out(
    at: Harness, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def failing(_connection: sqlite3.Connection) -> bool:
        raise error

    with monkeypatch.context() as patched, pytest.raises((type(error), StoreFailed)):
        patched.setattr(store, "sweep", failing)
        opened(at).maintain()
    at.append(at.session("s"), say("fine"))
    opened(at).maintain()
