"""What one request costs, beside a C program on libfuse.

The kernel caches nearly everything of a mount for an hour, so these are on a temporary in a session directory: its
timeouts are 0, and every call of the client is a request.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.bench.bench import OURS, Bench, Medians, cost, measured
from tests.bench.figures import AtMost, Claim, Placement, Report
from tests.bench.places import WRITTEN

PASSTHROUGH = "C passthrough"
BOUND = AtMost(2)
KINDS = {"fstat": "getattr", "open": "open + close", "pwrite": "write of 200 bytes", "stat": "lookup"}
UNBOUNDED = ("lookup",)


def requests(bench: Bench) -> Report:
    """getattr, open + close, write and lookup; bounded where client and server share a CPU."""
    report = Report("Requests, beside a C passthrough on libfuse")
    ours = bench.some.sessions(WRITTEN) / "single" / "request.tmp"
    ours.touch()
    with bench.passthrough() as server:
        if server is None:
            report.note = f"{PASSTHROUGH}: not built, libfuse's headers (fuse3) are not installed."
            return report
        process, theirs = server
        for operation, name in KINDS.items():
            files = {OURS: ours, PASSTHROUGH: theirs}
            systems = {system: partial(_median, bench, operation, file) for system, file in files.items()}
            medians = bench.compare(systems, [bench.some.pid, process])
            report.measured += measured(medians, "µs", f"{name}: ")
            report.claims += _claims(name, medians)
    return report


def _claims(name: str, medians: Medians) -> list[Claim]:
    """Apart, the wake-up of the other CPU hides what a request costs: such figures have no bound."""
    claims = cost(f"{name} request", medians, PASSTHROUGH, BOUND)
    return [
        claim if claim.placement is Placement.PINNED and name not in UNBOUNDED else replace(claim, bound=None)
        for claim in claims
    ]


def _median(bench: Bench, operation: str, file: Path, cpu: int | None) -> float:
    return bench.client(operation, file, cpu=cpu, count=bench.sizes.operations).median_us
