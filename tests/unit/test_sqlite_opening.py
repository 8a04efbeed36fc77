"""Opening a sqlite store: modes, its lock, and refusals that change nothing (spec 4.6; field reports 15, 24)."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from backend.errors import OpenError, StoreCorrupt, StoreFormat, StoreLocked, StoreReadOnly
from backend.rows import Append
from backend.sqlite import SqliteStore, opening
from tests.contract.harness import Harness, event, say

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


def tree(path: Path) -> dict[str, tuple[int, bytes]]:
    """Everything in a directory: modes and contents."""
    return {
        str(file.relative_to(path)): (file.stat().st_mode, file.read_bytes() if file.is_file() else b"")
        for file in [path, *path.rglob("*")]
    }


def close(at: Harness) -> Path:
    at.store.close()
    return at._directory / "store"


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """The directory of a closed store with a session of two hundred lines."""
    at = Harness("sqlite", tmp_path)
    session = at.session("s")
    for n in range(200):
        at.append(session, say(f"line {n}" * 10))
    return close(at)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    old = os.umask(mask)
    try:
        yield
    finally:
        os.umask(old)


def modes(path: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()}


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_files_are_private_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        at = Harness("sqlite", tmp_path)
        at.append(at.session("s"), say("secret"))
        path = tmp_path / "store"

        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert modes(path) == dict.fromkeys(("ctxfs.db", "ctxfs.db-wal", "lock"), 0o600)
        at.reopen()
        assert set(modes(path).values()) == {0o600}
        at.store.close()


@pytest.mark.parametrize("mask", [0, 0o077])
def test_missing_directories_above_are_made_for_all_to_pass(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        SqliteStore.open_now(tmp_path / "a" / "b" / "store").close()

    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a/b/store")] == [
        0o755,
        0o755,
        0o700,
    ]


def test_a_store_that_became_readable_is_made_private_again(closed: Path) -> None:
    closed.chmod(0o755)
    (closed / "ctxfs.db").chmod(0o644)

    SqliteStore.open_now(closed).close()

    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert set(modes(closed).values()) == {0o600}


def test_an_open_store_is_locked_and_closing_lets_it_go(tmp_path: Path) -> None:
    at = Harness("sqlite", tmp_path)
    before = tree(tmp_path)

    with pytest.raises(StoreLocked, match="open in another process"):
        SqliteStore.open_now(tmp_path / "store")

    assert tree(tmp_path) == before
    at.append(at.session("s"), say("still works"))
    SqliteStore.open_now(close(at)).close()


def test_no_other_program_reads_or_writes_the_database_of_an_open_store(tmp_path: Path) -> None:
    at = Harness("sqlite", tmp_path)
    database = tmp_path / "store" / "ctxfs.db"
    read = f"import sqlite3; sqlite3.connect({str(database)!r}, timeout=0).execute('SELECT * FROM store').fetchone()"

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, check=False)

    assert "database is locked" in run().stderr
    at.append(at.session("s"), say("still works"))
    close(at)
    assert run().returncode == 0


def test_a_moved_store_is_whole(closed: Path, tmp_path: Path) -> None:
    moved = closed.rename(tmp_path / "elsewhere")

    with closing(SqliteStore.open_now(moved)) as store:
        [owner] = store.owners("home/1000", "agent")
        session = store.session(owner.id, "s")
        assert session is not None
        assert len(store.rows(session.id)) == 200
    assert str(closed).encode() not in (moved / "ctxfs.db").read_bytes()


def instead(make: Callable[[Path], None]) -> Callable[[Path], object]:
    def damage(database: Path) -> None:
        database.unlink()
        make(database)

    return damage


def overwrite(offset: int, content: bytes) -> Callable[[Path], None]:
    def damage(database: Path) -> None:
        with database.open("r+b") as file:
            file.seek(offset if offset >= 0 else database.stat().st_size + offset)
            file.write(content)

    return damage


def execute(sql: str) -> Callable[[Path], None]:
    def damage(database: Path) -> None:
        with closing(sqlite3.connect(database, isolation_level=None)) as connection:
            connection.execute(sql)

    return damage


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (lambda database: database.write_bytes(b""), StoreCorrupt, "not a database"),
        (lambda database: database.write_bytes(b"not a database at all" * 100), StoreCorrupt, "not a database"),
        (lambda database: os.truncate(database, 50), StoreCorrupt, "not a database"),
        (lambda database: os.truncate(database, 4096), StoreCorrupt, "damaged"),
        (lambda database: os.truncate(database, 30_000), StoreCorrupt, "damaged"),
        (overwrite(0, b"x"), StoreCorrupt, "not a database"),
        (instead(os.mkfifo), StoreCorrupt, "not a regular file"),
        (overwrite(100, b"x" * 3000), StoreCorrupt, "damaged"),
        (overwrite(4096, b"x" * 8192), StoreCorrupt, "damaged"),
        (overwrite(-4096, b"x" * 4096), StoreCorrupt, "damaged"),
        (execute("DROP TABLE store"), StoreCorrupt, "damaged"),
        (execute("PRAGMA user_version = 99"), StoreFormat, "format 99"),
        (execute("PRAGMA user_version = 0"), StoreFormat, "format 0"),
        (execute("PRAGMA application_id = 7"), StoreFormat, "another program"),
        (lambda database: database.rename(database.with_suffix(".db-wal")), StoreCorrupt, "no ctxfs.db"),
    ],
)
def test_a_damaged_or_foreign_database_is_refused_and_left_as_it_is(
    closed: Path, damage: Callable[[Path], None], kind: type[OpenError], message: str
) -> None:
    damage(closed / "ctxfs.db")
    before = tree(closed)

    with pytest.raises(kind, match=message) as refused:
        SqliteStore.open_now(closed)

    assert "\n" not in str(refused.value)
    assert tree(closed) == before


def crashed(at: Harness) -> Path:
    """A copy of the open store's files: what a crash of the process leaves."""
    at.append(at.session("s"), *(say(f"line {n}" * 10) for n in range(200)))
    path = at._directory / "crashed"
    path.mkdir(0o700)
    for name in ("ctxfs.db", "ctxfs.db-wal"):
        shutil.copy(at._directory / "store" / name, path / name)
        (path / name).chmod(0o600)
    at.store.close()
    return path


def test_damage_beside_a_write_ahead_log_changes_nothing_either(tmp_path: Path) -> None:
    path = crashed(Harness("sqlite", tmp_path))
    overwrite(4096, b"x" * 150_000)(path / "ctxfs.db")
    before = tree(path)

    with pytest.raises(StoreCorrupt, match="damaged"):
        SqliteStore.open_now(path)

    assert tree(path) == before


def test_what_was_committed_before_a_crash_is_there(tmp_path: Path) -> None:
    path = crashed(Harness("sqlite", tmp_path))

    with closing(SqliteStore.open_now(path)) as store:
        [owner] = store.owners("home/1000", "agent")
        assert [session.n for session in store.sessions(owner.id)] == [200]


def test_a_directory_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    before = tree(tmp_path)

    with pytest.raises(StoreFormat, match="not a sqlite store"):
        SqliteStore.open_now(tmp_path)

    assert tree(tmp_path) == before


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    with pytest.raises(StoreFormat, match="not a directory"):
        SqliteStore.open_now(tmp_path / "file")


@pytest.mark.parametrize(
    "left", [("lock",), (".ctxfs.db.new",), (".ctxfs.db.new", ".ctxfs.db.new-wal", "lock"), ("disk",)]
)
def test_what_a_killed_creation_leaves_is_no_obstacle(tmp_path: Path, left: tuple[str, ...]) -> None:
    for name in left:
        (tmp_path / name).write_bytes(b"half")

    SqliteStore.open_now(tmp_path).close()

    assert {"ctxfs.db", "lock"} <= set(modes(tmp_path)) <= {"ctxfs.db", "lock", "disk"}


@AS_ROOT
def test_a_read_only_file_system_is_said_to_be_one(closed: Path, tmp_path: Path) -> None:
    mountpoint = tmp_path / "mounted"
    mountpoint.mkdir()
    subprocess.run(["mount", "--bind", closed, mountpoint], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", mountpoint], check=True)
        before = tree(closed)
        with pytest.raises(StoreReadOnly):
            SqliteStore.open_now(mountpoint)
        assert tree(closed) == before
    finally:
        subprocess.run(["umount", mountpoint], check=True)


@pytest.fixture
def as_user(closed: Path) -> Iterator[Path]:
    """A closed store of an ordinary user, who runs the test."""
    uid = os.geteuid() or 12345
    with tempfile.TemporaryDirectory(prefix="ctxfs-", dir="/var/tmp") as directory:
        path = Path(shutil.copytree(closed, Path(directory) / "store"))
        for file in (Path(directory), path, *path.iterdir()):
            os.chown(file, uid, -1)
        caller = os.geteuid()
        os.seteuid(uid)
        try:
            yield path
        finally:
            path.chmod(0o700)
            os.seteuid(caller)


@pytest.mark.parametrize("name", [".", "ctxfs.db", "lock"])
def test_files_without_write_permission_are_said_to_be_read_only(as_user: Path, name: str) -> None:
    (as_user / name).chmod(0o500)
    before = tree(as_user)

    with pytest.raises(StoreReadOnly):
        SqliteStore.open_now(as_user)

    assert tree(as_user) == before


def test_a_database_of_an_earlier_format_is_brought_up_to_date(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = opening.VERSION - 1
    execute(f"PRAGMA user_version = {before}")(closed / "ctxfs.db")
    migrated = "UPDATE session SET title = 'migrated'"
    monkeypatch.setattr(opening, "MIGRATIONS", {before: lambda connection: connection.execute(migrated)})

    with closing(SqliteStore.open_now(closed)) as store:
        assert store._database.all("SELECT title FROM session") == [("migrated",)]

    monkeypatch.undo()
    SqliteStore.open_now(closed).close()


def test_a_database_of_the_first_format_goes_on(closed: Path) -> None:
    with closing(SqliteStore.open_now(closed)) as store:
        [owner] = store.owners("home/1000", "agent")
        session = store.session(owner.id, "s")
        assert session is not None
        start = event("start", id="r1", run="r1", client_id="c1", scope="private", cwd="/")
        store.append([Append(session.id, [start])])
        store.add_space("home/1001", 1001, 1001, 0o700)  # merges what waits
    tables = ("pending", "run_line", "live_run", "value_line")
    for sql in (*(f"DROP TABLE {table}" for table in tables), "PRAGMA user_version = 1"):
        execute(sql)(closed / "ctxfs.db")

    for expected in (202, 203):
        with closing(SqliteStore.open_now(closed)) as store:
            [owner] = store.owners("home/1000", "agent")
            session = store.session(owner.id, "s")
            assert session is not None
            store.append([Append(session.id, [say("x")])])
            assert len(store.rows(session.id)) == expected
            assert [found.run for found in store.starts(session.id, "c1")] == ["r1"]
