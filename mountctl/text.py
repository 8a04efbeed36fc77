"""Printing for people: escaping what must not reach a terminal, tables, colours (spec 4)."""

import os
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

# Given on: whoever prints for people finds all that it takes here.
from backend.printable import escaped as escaped  # noqa: PLC0414
from backend.printable import escaped_name as escaped_name  # noqa: PLC0414


def is_terminal() -> bool:
    """Whether stdout is one."""
    return sys.stdout.isatty()


def has_colour() -> bool:
    """Whether colours may be printed (``NO_COLOR`` honoured)."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, code: str) -> str:
    """``text`` in an SGR style where colours may be printed; in none if ``code`` is empty."""
    return f"\x1b[{code}m{text}\x1b[0m" if code and has_colour() else text


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Aligned columns under titles on a terminal; elsewhere tab-separated rows without titles, for ``cut``.

    Elsewhere each row is printed as it comes, so that nothing waits for a long list.
    """
    cells = ([escaped_name(cell) for cell in row] for row in rows)
    if not is_terminal():
        for row in cells:
            print("\t".join(row))
        return
    from rich.cells import cell_len

    held = [list(titles), *cells]
    widths = [max(map(cell_len, column)) for column in zip(*held, strict=True)]
    for number, row in enumerate(held if len(held) > 1 else ()):
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        print(styled("  ".join(padded).rstrip(), "" if number else "1"))


def counted(count: int, noun: str, plural: str = "") -> str:
    """``1 line``, ``2 lines``, ``2 entries``."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def bytes_text(count: int) -> str:
    """A size for people: ``812 B``, ``4.1 MiB``."""
    if count < 1024:
        return f"{count} B"
    units = ("KiB", "MiB", "GiB", "TiB")
    power = min((count.bit_length() - 1) // 10, len(units))
    return f"{count / 1024**power:.1f} {units[power - 1]}"


def duration_text(seconds: int) -> str:
    """A time span for people: ``42s``, ``3h12m``, ``5d4h``, ``533d``."""
    if seconds >= 10 * 86400:
        return f"{seconds // 86400}d"
    for unit, size, smaller in (("d", 86400, 3600), ("h", 3600, 60), ("m", 60, 1)):
        if seconds >= size:
            return f"{seconds // size}{unit}{seconds % size // smaller}{'hms'['dhm'.index(unit)]}"
    return f"{seconds}s"


def age_text(seconds: int) -> str:
    """A point in time for people: how long ago on a terminal, ISO 8601 in UTC elsewhere."""
    if not is_terminal():
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{duration_text(max(0, int(time.time()) - seconds))} ago"


def is_confirmed(question: str) -> bool:
    """Whether somebody at a terminal agrees; nobody does where there is none."""
    if not sys.stdin.isatty():
        return False
    print(f"{escaped_name(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
