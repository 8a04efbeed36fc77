"""Whole processes: what a script pays for one ``ctx agent output``."""

import os
import sys
from pathlib import Path

from tests.bench.bench import OURS, Bench, System, cost, measured
from tests.bench.figures import AtMost, Report
from tests.bench.places import LISTED, names
from tests.mounting import PROJECT

BARE = "python -c pass"
COUNT = 10
# What an installation makes of the entry point `ctx = mountctl.ctx:main`.
SCRIPT = """\
import sys
from mountctl.ctx import main
if __name__ == "__main__":
    sys.exit(main())
"""


def agent_output(bench: Bench) -> Report:
    """``ctx agent output AGENT -s SESSION`` beside an interpreter that does nothing."""
    script = bench.disk / "ctx"
    script.write_text(SCRIPT)
    os.environ |= {"CTX_ROOT": str(bench.some.mount.path), "PYTHONPATH": str(PROJECT)}
    session = names(bench.sizes.some)[-1]

    def system(*arguments: str | Path) -> System:
        return lambda cpu: bench.client("run", sys.executable, *arguments, cpu=cpu, count=COUNT).median_ns / 1e6

    systems = {OURS: system(script, "agent", "output", LISTED, "-s", session), BARE: system("-c", "pass")}
    medians = bench.compare(systems, [bench.some.pid])
    title = "ctx agent output, start to end"
    return Report(title, measured(medians, "ms"), cost(title, medians, BARE, AtMost(2.5)))
