"""``python -m tests.bench [--check] [--quick] [--write] [ROW…]``: measures, prints tables, and may judge them.

Needs root, /dev/fuse and a C compiler. ``--check`` exits 1 and names every bound that is missed; ``--write`` puts the
tables of a whole run into docs/performance.md.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench import figures
from tests.bench.bench import QUICK, Bench, Sizes, progress
from tests.bench.figures import Report
from tests.bench.machine import described
from tests.bench.rows import ROWS, Row
from tests.mounting import PROJECT

DOCUMENT = PROJECT / "docs" / "performance.md"


def main(arguments: Sequence[str] | None = None, rows: Mapping[str, Row] = ROWS, document: Path = DOCUMENT) -> int:
    """Exit status: 0, or 1 where ``--check`` found a bound that is missed."""
    options = _parse(arguments, rows)
    machine = described()
    reports = _measure(options.rows or list(rows), rows, QUICK if options.quick else Sizes())
    tables = f"{machine}\n\n{figures.text(reports)}"
    print(tables)
    if options.write:
        document.write_text(figures.replaced(document.read_text("utf-8"), tables), "utf-8")
    missed = [claim for report in reports for claim in report.missed()]
    for claim in missed:
        progress(f"missed: {claim}")
    return 1 if options.check and missed else 0


def _parse(arguments: Sequence[str] | None, rows: Mapping[str, Row]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description="Measures the mount beside native file systems.")
    parser.add_argument("--check", action="store_true", help="exit 1 and name every bound that is missed")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds: to try, not to publish")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/performance.md")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"only these: {', '.join(rows)}")
    options = parser.parse_args(arguments)
    if unknown := set(options.rows) - set(rows):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    if options.write and (options.rows or options.quick):
        parser.error("--write takes a whole run")
    return options


def _measure(chosen: Sequence[str], rows: Mapping[str, Row], sizes: Sizes) -> list[Report]:
    os.environ["LC_ALL"] = "C"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has its bytecode
    with contextlib.ExitStack() as stack:
        bench = Bench(stack, sizes)
        reports = []
        for name in chosen:
            progress(f"measuring {name}")
            reports.append(report := rows[name](bench))
            progress(figures.text([report]))  # what was measured is told also where a later row fails
        return reports


if __name__ == "__main__":
    sys.exit(main())
