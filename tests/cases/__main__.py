"""``python -m tests.cases KIND FILE [--store sqlite|memory|jsonl]``: prints what fails, and how many of each."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cases import log, ws_ckpt
from tests.cases.rows import Row, check, read_rows

KINDS: dict[str, Callable[[dict[str, Any], str], None]] = {
    "log": log.check_row,
    "ws-ckpt": lambda row, _: ws_ckpt.check_row(row),
}


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        content = Path(options.file).read_bytes()
    except OSError as error:
        print(f"{options.file}: {error.strerror}", file=sys.stderr)
        return 2
    return report(read_rows(content), lambda row: KINDS[options.kind](row, options.store))


def report(rows: list[Row], check_row: Callable[[dict[str, Any]], None]) -> int:
    """Runs all rows; the exit status."""
    failed = 0
    for row in rows:
        if reason := check(row, check_row):
            failed += 1
            print(row.id, flush=True)
            print(f"{row.id}: {reason}", file=sys.stderr)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cases", description=__doc__)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("file", help="rows of JSON, one a line")
    parser.add_argument(
        "--store", choices=("sqlite", "memory", "jsonl"), default="sqlite", help="for log; default: sqlite"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
