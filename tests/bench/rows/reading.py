"""Reading a long log from start to end, with its pages cached and without."""

from functools import partial
from pathlib import Path

from tests.bench.bench import OURS, Bench, measured, speed
from tests.bench.figures import AtLeast, Report
from tests.bench.places import LINE_BYTES, LOGS, native_log

PASSES = 5


def read_warm(bench: Bench) -> Report:
    """A log of 100 MB that is in the page cache, beside native files that are."""
    lines = bench.sizes.read_lines
    files = {OURS: bench.some.log(LOGS, "read")}
    files |= {name: native_log(base / "read", lines) for name, base in bench.natives.items()}
    for file in files.values():
        _rate(bench, "read", file, None)
    systems = {name: partial(_rate, bench, "read", file) for name, file in files.items()}
    medians = bench.compare(systems, [bench.some.pid])
    title = f"read {_size(bench)}, warm"
    return Report(title, measured(medians, "ms"), speed(title, medians, bench.native, AtLeast(0.5)))


def read_cold(bench: Bench) -> Report:
    """The same log without its pages, the database cached; beside a plain file that the same mount serves."""
    plain = native_log(bench.some.data / "read", bench.sizes.read_lines)
    systems = {
        OURS: partial(_rate, bench, "read-cold", bench.some.log(LOGS, "read")),
        "plain file, same mount": partial(_rate, bench, "read-cold", plain),
    }
    for measure in systems.values():
        measure(None)
    medians = bench.compare(systems, [bench.some.pid])
    title = f"read {_size(bench)}, cold"
    return Report(title, measured(medians, "ms"), speed(title, medians, "plain file, same mount", AtLeast(0.4)))


def _rate(bench: Bench, operation: str, file: Path, cpu: int | None) -> float:
    return bench.client(operation, file, cpu=cpu, count=PASSES).median_ns / 1e6


def _size(bench: Bench) -> str:
    return f"{bench.sizes.read_lines * LINE_BYTES / 1e6:.0f} MB"
