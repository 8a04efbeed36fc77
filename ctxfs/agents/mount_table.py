"""``agent/<agent>.d/mount``: what of the host is in an agent's view (spec 3.4). Pure; standard library only.

A line is ``source TAB target TAB ro|rw [TAB options]``, options separated by commas.
"""

from collections.abc import Sequence
from typing import NamedTuple

from backend.errors import InvalidValue
from backend.names import is_stable_path

MODES = ("ro", "rw")
# Set-id bits and device nodes give nobody anything in a view, whatever a line says.
OPTIONS = frozenset(("bind", "rbind", "nosuid", "nodev", "noexec"))


class MountRow(NamedTuple):
    """One line; ``source`` a path of the host, ``target`` one of the view, never its root."""

    source: str
    target: str
    writable: bool
    options: tuple[str, ...] = ()


def parse_table(text: str) -> Sequence[MountRow]:
    """The rows of a table, in order; blank lines are none (``InvalidValue``, with the line's number)."""
    return [_row(number, line) for number, line in enumerate(text.split("\n"), 1) if line]


def _row(number: int, line: str) -> MountRow:
    columns = line.split("\t")
    if len(columns) not in (3, 4) or not line.replace("\t", "").isprintable():
        raise InvalidValue(f"line {number}: a row is source TAB target TAB ro|rw TAB options")
    source, target, mode = columns[:3]
    options = tuple(filter(None, ",".join(columns[3:]).split(",")))
    if not is_stable_path(source) or not is_stable_path(target) or target == "/":
        raise InvalidValue(f"line {number}: source and target are stable paths (spec 1.6), the target not /")
    if mode not in MODES:
        raise InvalidValue(f"line {number}: the third column is ro or rw")
    if unknown := sorted(set(options) - OPTIONS):
        raise InvalidValue(f"line {number}: unknown option {unknown[0]!r}; known are {', '.join(sorted(OPTIONS))}")
    return MountRow(source, target, mode == "rw", options)
