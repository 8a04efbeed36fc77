"""Appending lines of 200 bytes: answered, which is committed, and on disk."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.bench.bare_commit import BareCommit
from tests.bench.bench import OURS, Bench, Medians, cost, measured, speed
from tests.bench.figures import AtLeast, AtMost, Bound, Claim, Report
from tests.bench.places import WRITERS, WRITTEN

SIZE = 200
BARE = "bare SQLite commit"
ROW = "a mount that only commits a row"
NOTHING = "a mount that stores nothing"


def append(bench: Bench) -> Report:
    """One writer beside a bare commit of as long a row; and eight writers beside one."""
    title = f"append of {SIZE} bytes, answered"
    single, writers = [bench.some.log(WRITTEN, "single")], bench.some.writers()
    with bench.bare_mount() as (nothing_pid, nothing), bench.bare_mount(bench.disk / "row.db") as (row_pid, row):
        files = {OURS: (single, writers)} | {
            name: ([mount / "single"], [mount / file.parent.name for file in writers])
            for name, mount in ((NOTHING, nothing), (ROW, row))
        }
        systems = {BARE: bare_commit(bench.disk / "bare.db", bench.sizes.operations)}
        for name, (one, eight) in files.items():
            systems |= {
                name: partial(_each, bench, "append", one),
                _eight(name): partial(_each, bench, "append", eight),
            }
        medians = bench.compare(systems, [bench.some.pid, nothing_pid, row_pid])
    claims = cost(title, medians, BARE, AtMost(4.5)) + _together(medians, OURS, AtLeast(3))
    return Report(
        title,
        measured(medians, "µs"),
        claims + _together(medians, ROW, None) + _together(medians, NOTHING, None),
        "8 writers: time from the first start to the last end, per line. The mounts that only commit, and that store "
        "nothing, are `tests/bench/bare_mount.py`: pyfuse3 on our loop and no file system above it.",
    )


def _eight(system: str) -> str:
    return f"{system}, {WRITERS} writers"


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
    """The median time of ``BareCommit`` for a row of such a line."""
    commit, row = BareCommit(path), b"x" * SIZE

    def measure(_: int | None) -> float:
        times = []
        for _ in range(count):
            begin = time.perf_counter_ns()
            commit(row)
            times.append(time.perf_counter_ns() - begin)
        return sorted(times)[count // 2] / 1000

    return measure


def _together(medians: Medians, system: str, bound: Bound | None) -> list[Claim]:
    what = "8 writers together beside one" + ("" if system == OURS else f": {system}")
    return [
        Claim(what, values[system] / values[_eight(system)], bound, placement) for placement, values in medians.items()
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
