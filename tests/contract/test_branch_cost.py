"""A branch costs the same whatever its parent and where: rows, pages, bytes; time is the benchmark's (spec 2.8)."""

import tracemalloc
from pathlib import Path

from backend.rows import Append, Session
from backend.sqlite import SqliteStore
from tests.contract.harness import Harness, cd, event, say

LONG = 200_000
BATCH = 5_000
A_FEW = 12
"""Pages: down to a row of the log, its records, down to a row for each of four values."""


def filled(at: Harness, name: str, entries: int) -> Session:
    """A session with so many entries in both files."""
    session, lines = at.session(name), [say("hello"), event("delta", run="r", text="x")] * (BATCH // 2)
    for start in range(0, entries, BATCH):
        at.store.append([Append(session.id, lines[: entries - start])])
    at.store.maintain()
    assert at.now(session).n == entries
    return session


class Written:
    """What a SQLite store writes: rows changed, pages of the database, bytes of its -wal."""

    def __init__(self, at: Harness, directory: Path) -> None:
        assert isinstance(at.store, SqliteStore)
        self._store = at.store
        self._connection = at.store._database.connection
        [self._wal] = directory.rglob("*-wal")

    def by_branching(self, session: Session, name: str, at: int) -> tuple[int, int, int]:
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        rows, pages = self._connection.total_changes, self._pages()
        self._store.branch_session(session.id, at, name)
        return self._connection.total_changes - rows, self._pages() - pages, self._wal.stat().st_size

    def _pages(self) -> int:
        [[pages]] = self._connection.execute("PRAGMA page_count").fetchall()
        return int(pages)


def test_a_branch_of_a_long_log_writes_what_one_of_an_empty_log_does(tmp_path: Path) -> None:
    at = Harness("sqlite", tmp_path)
    empty, long = at.session("empty"), filled(at, "long", LONG)
    written = Written(at, tmp_path)
    written.by_branching(empty, "warm", 0)
    figures = [written.by_branching(empty, f"e{n}", 0) for n in range(20)]
    long_figures = [written.by_branching(long, f"l{n}", at_) for n, at_ in enumerate(range(LONG, 0, -LONG // 20))]
    assert {rows for rows, _, _ in long_figures} == {rows for rows, _, _ in figures}
    for column in (1, 2):
        assert sum(f[column] for f in long_figures) <= 1.2 * sum(f[column] for f in figures) + 1
    at.store.close()


def reads() -> int:
    """How often this process has read from a file, one page at a time where SQLite does."""
    figures = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(figures["syscr"])


VALUES = (
    say("z" * 200_000, "assistant"),
    cd("/somewhere"),
    event("state", **{"from": "idle", "state": "active"}),
    event("meta", meta={"client": "c"}),
)


def test_a_branch_from_the_middle_reads_what_one_of_an_empty_log_does_and_a_few_pages(tmp_path: Path) -> None:
    """Whatever lines there are: many short ones before it in their row, long ones that set what its files say."""
    at = Harness("sqlite", tmp_path)
    assert isinstance(at.store, SqliteStore)
    connection = at.store._database.connection
    sessions = {"empty": at.session("empty"), "long": filled(at, "long", LONG), "values": at.session("values")}
    for _ in range(40):
        at.append(sessions["values"], *VALUES, *[say("short")] * 30)
    at.store.maintain()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def by_branching(name: str, at_: int) -> int:
        session = at.now(sessions[name])
        connection.execute("PRAGMA shrink_memory").fetchall()
        before = reads()
        at.store.branch_session(session.id, at_, f"{name}{at_}")
        return reads() - before

    most = max(by_branching("empty", 0), by_branching("values", 0)) + A_FEW
    for name in ("long", "values"):
        n = at.now(sessions[name]).n
        figures = {at_: by_branching(name, at_) for at_ in range(1, n, n // 23)}
        assert max(figures.values()) <= most, (name, figures)
    at.store.close()


def test_a_branch_of_a_long_log_takes_the_memory_of_one_of_a_short_log(tmp_path: Path) -> None:
    """The numbers of an empty one are small enough for Python to share."""
    at = Harness("memory", tmp_path)
    short, long = filled(at, "short", 1000), filled(at, "long", LONG)

    def held(session: Session) -> int:
        tracemalloc.start()
        for n in range(100):
            at.store.branch_session(session.id, at.now(session).n - n, f"{session.name}{n}")
        [taken, _] = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return taken

    assert held(long) <= 1.2 * held(short)
    at.store.close()
