"""Names and attributes: stat and ``ls -l``, with what the kernel knows and after it has forgotten everything."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tests.bench.bench import OURS, Bench, System, measured, speed
from tests.bench.figures import AtLeast, Report
from tests.bench.places import LISTED, names

LS = "/bin/ls"
DROP_DENTRIES = "2"


def stat_warm(bench: Bench) -> Report:
    """stat of 10k messages.jsonl that the kernel knows."""
    files = [f"{name}/messages.jsonl" for name in names(bench.sizes.some)]

    def system(sessions: Path) -> System:
        return lambda cpu: bench.client("stat", *files, cpu=cpu, cwd=sessions).median_us

    systems = {name: system(sessions) for name, sessions in _some(bench).items()}
    for measure in systems.values():
        measure(None)
    medians = bench.compare(systems, [bench.some.pid])
    title = f"stat of {len(files)} messages.jsonl, warm"
    return Report(title, measured(medians, "µs"), speed(title, medians, bench.native, AtLeast(0.8)))


def ls_warm(bench: Bench) -> Report:
    """``ls -l`` of 10k sessions that the kernel knows."""
    systems = {name: partial(_ls, bench, sessions) for name, sessions in _some(bench).items()}
    for measure in systems.values():
        measure(None)
    medians = bench.compare(systems, [bench.some.pid])
    title = f"ls -l of {bench.sizes.some} sessions, warm"
    return Report(title, measured(medians, "ms"), speed(title, medians, bench.native, AtLeast(0.8)))


def ls_cold(bench: Bench) -> Report:
    """``ls -l`` of 100k sessions after the kernel dropped dentries and inodes of all file systems."""
    places = {OURS: bench.many.sessions(LISTED), **bench.native_many}

    def system(sessions: Path) -> System:
        def measure(cpu: int | None) -> float:
            Path("/proc/sys/vm/drop_caches").write_text(DROP_DENTRIES)
            return _ls(bench, sessions, cpu)

        return measure

    medians = bench.compare({name: system(sessions) for name, sessions in places.items()}, [bench.many.pid])
    title = f"ls -l of {bench.sizes.many} sessions, dentries dropped"
    note = "tmpfs keeps its inodes, so nothing is dropped there but names."
    return Report(title, measured(medians, "ms"), speed(title, medians, bench.native, AtLeast(0.9)), note)


def _some(bench: Bench) -> Mapping[str, Path]:
    return {OURS: bench.some.sessions(LISTED), **bench.native_some}


def _ls(bench: Bench, sessions: Path, cpu: int | None) -> float:
    return bench.client("run", LS, "-l", sessions, cpu=cpu).median_ns / 1e6
