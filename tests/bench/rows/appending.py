"""Appending lines of 200 bytes: answered, which is committed, and on disk."""

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.bench.bench import OURS, Bench, Medians, cost, measured, speed
from tests.bench.figures import AtLeast, AtMost, Claim, Report
from tests.bench.places import WRITERS, WRITTEN

SIZE = 200
BARE = "bare SQLite commit"


def append(bench: Bench) -> Report:
    """One writer beside a bare commit of as long a row; and eight writers beside one."""
    medians = bench.compare(
        {
            OURS: partial(_each, bench, "append", [bench.some.log(WRITTEN, "single")]),
            BARE: bare_commit(bench.disk / "bare.db", bench.sizes.operations),
            "ctxfs, 8 writers": partial(_each, bench, "append", bench.some.writers()),
        },
        [bench.some.pid],
    )
    title = f"append of {SIZE} bytes, answered"
    claims = cost(title, medians, BARE, AtMost(4.5)) + _together(medians)
    return Report(
        title, measured(medians, "µs"), claims, "8 writers: time from the first start to the last end, per line."
    )


def append_synced(bench: Bench) -> Report:
    """write and fdatasync of each line: one writer, and eight on eight files."""
    ours = {1: [bench.some.log(WRITTEN, "single")], WRITERS: bench.some.writers()}
    theirs = {count: _native_logs(bench.disk / f"synced{count}", count) for count in ours}
    report = Report(f"append of {SIZE} bytes + fdatasync")
    for count, bound in ((1, 0.3), (WRITERS, 0.45)):
        what = f"{report.title}, {count} writer{'s' if count > 1 else ''}"
        systems = {
            OURS: partial(_each, bench, "append-sync", ours[count]),
            bench.native: partial(_each, bench, "append-sync", theirs[count]),
        }
        medians = bench.compare(systems, [bench.some.pid])
        report.measured += measured(medians, "µs", f"{count}: ")
        report.claims += speed(what, medians, bench.native, AtLeast(bound))
    return report


def bare_commit(path: Path, count: int) -> Callable[[int | None], float]:
    """What SQLite itself takes to commit a row of such a line, from Python, with the store's settings."""
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for setting in ("journal_mode = WAL", "synchronous = NORMAL", "cache_size = -16384"):
        database.execute(f"PRAGMA {setting}").fetchall()
    database.execute("CREATE TABLE line (log INTEGER NOT NULL, start INTEGER NOT NULL, data BLOB NOT NULL)")
    database.execute("CREATE UNIQUE INDEX line_start ON line (log, start)")
    row = b"x" * SIZE
    start = 0

    def measure(_: int | None) -> float:
        nonlocal start
        times = []
        for _ in range(count):
            begin = time.perf_counter_ns()
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO line VALUES (1, ?, ?)", (start, row))
            database.execute("COMMIT")
            times.append(time.perf_counter_ns() - begin)
            start += SIZE
        return sorted(times)[count // 2] / 1000

    return measure


def _together(medians: Medians) -> list[Claim]:
    what = "8 writers together beside one"
    return [
        Claim(what, values[OURS] / values["ctxfs, 8 writers"], AtLeast(3), placement)
        for placement, values in medians.items()
    ]


def _each(bench: Bench, operation: str, files: list[Path], cpu: int | None) -> float:
    """One writer: the median line; several: the time for each, of all they write together."""
    count = bench.sizes.operations
    sample = bench.client(operation, *files, cpu=cpu, count=count, processes=len(files), size=SIZE)
    return sample.median_us if len(files) == 1 else sample.each_us


def _native_logs(directory: Path, count: int) -> list[Path]:
    directory.mkdir()
    files = [directory / f"{number}.jsonl" for number in range(count)]
    for file in files:
        file.touch()
    return files
