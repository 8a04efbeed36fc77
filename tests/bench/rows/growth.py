"""Appends and opens in logs and stores of every size: what they cost must not grow."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tests.bench.bench import Bench, Medians, measured
from tests.bench.figures import AtMost, Claim, Report
from tests.bench.places import LISTED, LOGS, names

BOUND = AtMost(1.5)
OPERATIONS = {"append": "append of 200 bytes", "tail": "open, stat, read of the last 4 KiB uncached, close"}


def entries(bench: Bench) -> Report:
    """From one entry to a million."""
    files = {f"{count:,} entries": bench.many.log(LOGS, str(count)) for count in bench.sizes.logs}
    return _flat(bench, "Logs of different length", files, [bench.many.pid])


def sessions(bench: Bench) -> Report:
    """From a store with one session of an agent to one with 100k."""
    served = {1: bench.lone, bench.sizes.some: bench.some, bench.sizes.many: bench.many}
    files = {f"{count:,} sessions": mount.log(LISTED, names(count)[-1]) for count, mount in served.items()}
    return _flat(bench, "Stores of different size", files, [mount.pid for mount in served.values()])


def _flat(bench: Bench, title: str, files: Mapping[str, Path], servers: list[int]) -> Report:
    report = Report(title)
    first, *_, last = files
    for operation, name in OPERATIONS.items():
        systems = {size: partial(_median, bench, operation, file) for size, file in files.items()}
        for measure in systems.values():
            measure(None)
        medians = bench.compare(systems, servers)
        report.measured += measured(medians, "µs", f"{name}: ")
        report.claims += _growth(f"{name}: from {first} to {last}", medians)
    return report


def _growth(what: str, medians: Medians) -> list[Claim]:
    """The highest beside the figure of the smallest size."""
    return [
        Claim(what, max(values.values()) / next(iter(values.values())), BOUND, placement)
        for placement, values in medians.items()
    ]


def _median(bench: Bench, operation: str, file: Path, cpu: int | None) -> float:
    return bench.client(operation, file, cpu=cpu, count=bench.sizes.operations // 2).median_us
