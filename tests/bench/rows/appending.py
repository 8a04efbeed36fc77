"""Appending lines of 200 bytes: answered, which is committed, and on disk."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.bench.bare_commit import BareCommit
from tests.bench.bench import OURS, Bench, Medians, System, cost, measured, speed
from tests.bench.figures import AtLeast, AtMost, Claim, Report
from tests.bench.places import WRITERS, WRITTEN

SIZE = 200
BARE = "bare SQLite commit"
ROW = "a mount that only commits a row"
NOTHING = "a mount that stores nothing"


def append(bench: Bench) -> Report:
    """One writer beside a bare commit of as long a row; eight beside one, and beside a mount that only commits."""
    title = f"append of {SIZE} bytes, answered"
    single, writers = [bench.some.log(WRITTEN, "single")], bench.some.writers()
    with bench.bare_mount() as (nothing_pid, nothing), bench.bare_mount(bench.disk / "row.db") as (row_pid, row):
        files = {OURS: (single, writers)} | {
            name: ([mount / "single"], [mount / file.parent.name for file in writers])
            for name, mount in ((NOTHING, nothing), (ROW, row))
        }
        systems: dict[str, System] = {
            BARE: bare_commit(bench.disk / "bare.db", bench.sizes.operations),
            OURS: partial(_median, bench, "append", single),
        }
        for name, (one, eight) in files.items():
            systems |= {
                _alone(name): partial(_each, bench, "append", one),
                _eight(name): partial(_each, bench, "append", eight),
            }
        medians = bench.compare(systems, [bench.some.pid, nothing_pid, row_pid])
    claims = cost(title, medians, BARE, AtMost(4.5)) + _shared(medians)
    return Report(
        title,
        measured(medians, "µs"),
        claims + [claim for name in files for claim in _together(medians, name)],
        "1 writer, 8 writers: time from the first start to the last end, per line. The mounts that only commit, and "
        "that store nothing, are `tests/bench/bare_mount.py`: pyfuse3 on our loop and no file system above it.",
    )


def _alone(system: str) -> str:
    return f"{system}, 1 writer"


def _eight(system: str) -> str:
    return f"{system}, {WRITERS} writers"


def append_synced(bench: Bench) -> Report:
    """write and fdatasync of each line: one writer, and eight on eight files."""
    ours = {1: [bench.some.log(WRITTEN, "single")], WRITERS: bench.some.writers()}
    theirs = {count: _native_logs(bench.disk / f"synced{count}", count) for count in ours}
    report = Report(f"append of {SIZE} bytes + fdatasync")
    for count, bound in ((1, 0.3), (WRITERS, 0.45)):
        what = f"{report.title}, {count} writer{'s' if count > 1 else ''}"
        measure = _median if count == 1 else _each
        systems = {
            OURS: partial(measure, bench, "append-sync", ours[count]),
            bench.native: partial(measure, bench, "append-sync", theirs[count]),
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


def _shared(medians: Medians) -> list[Claim]:
    """That eight writers share commits: a line costs less than a lone writer's, and not much more than it must."""
    return [
        Claim(f"a line of {WRITERS} writers beside {what}", values[_eight(OURS)] / values[other], bound, placement)
        for what, other, bound in (
            ("a lone writer's", _alone(OURS), AtMost(0.9)),
            (f"one of {WRITERS} on {ROW}", _eight(ROW), AtMost(2.5)),
        )
        for placement, values in medians.items()
    ]


def _together(medians: Medians, system: str) -> list[Claim]:
    """Without a bound: what can be gained is pyfuse3's to say (docs/performance.md)."""
    what = f"{WRITERS} writers together beside one" + ("" if system == OURS else f": {system}")
    return [
        Claim(what, values[_alone(system)] / values[_eight(system)], None, placement)
        for placement, values in medians.items()
    ]


def _median(bench: Bench, operation: str, files: list[Path], cpu: int | None) -> float:
    """The median line of one writer."""
    return bench.client(operation, *files, cpu=cpu, count=bench.sizes.operations, size=SIZE).median_us


def _each(bench: Bench, operation: str, files: list[Path], cpu: int | None) -> float:
    """The time for each line of all that are written together, a writer for each file."""
    count = bench.sizes.operations
    return bench.client(operation, *files, cpu=cpu, count=count, processes=len(files), size=SIZE).each_us


def _native_logs(directory: Path, count: int) -> list[Path]:
    directory.mkdir()
    files = [directory / f"{number}.jsonl" for number in range(count)]
    for file in files:
        file.touch()
    return files
