"""The daemon's resident memory after it has shown everything, and whether it keeps growing."""

from pathlib import Path

from tests.bench.bench import Bench
from tests.bench.figures import AtMost, Claim, Report
from tests.bench.places import LISTED, LOGS
from tests.bench.rows.attributes import DROP_DENTRIES, LS

WALKS = 10


def resident(bench: Bench) -> Report:
    """A daemon of its own start: 100k sessions listed and the longest log read; then ten walks more."""
    served = bench.many
    served.mount.restart()
    started = resident_mib(served.pid)
    _walk(bench)
    once = resident_mib(served.pid)
    for _ in range(WALKS):
        _walk(bench)
    growth = resident_mib(served.pid) - once
    return Report(
        f"Resident memory, {bench.sizes.many} sessions listed and a log of {bench.sizes.logs[-1]} KiB read",
        claims=[
            Claim("resident memory when started", started, None, unit=" MiB"),
            Claim("resident memory afterwards", once, AtMost(120), unit=" MiB"),
            Claim(f"growth over {WALKS} more walks", growth, AtMost(4), unit=" MiB"),
        ],
        note="Each walk begins with nothing cached in the kernel.",
    )


def _walk(bench: Bench) -> None:
    Path("/proc/sys/vm/drop_caches").write_text(DROP_DENTRIES)
    bench.client("run", LS, "-l", bench.many.sessions(LISTED))
    bench.client("read-cold", bench.many.log(LOGS, str(bench.sizes.logs[-1])))


def resident_mib(process: int) -> float:
    """What of a process is in memory."""
    return mib_of("VmRSS", Path(f"/proc/{process}/status").read_text())


def mib_of(field: str, status: str) -> float:
    """A figure of a process' status."""
    for line in status.splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {field}")
