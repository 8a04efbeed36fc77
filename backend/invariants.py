"""What must hold of every log: spec 2.7, ``check_invariants``. Reports every fault, repairs none.

Pure. Judges entries as JSON objects of spec 2.1, so that it can be asked about any log, however it came to be.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeGuard

import msgspec

from backend.checks import COUNT
from backend.entries import Entry
from backend.errors import CtxError
from backend.strict_json import api_json

Rule = Literal["sequence", "cut-before", "json"]

_NUMBERED = ("n", "time", "kind")


class Fault(msgspec.Struct, frozen=True):
    """A broken rule: at which index of the log, which one, and in what way."""

    index: int
    rule: Rule
    reason: str


def check_invariants(entries: Iterable[Entry | Mapping[str, Any]]) -> list[Fault]:
    """Every fault of a log, by index: numbers from 0 without a gap, bounds of cuts, payloads that are JSON."""
    return [fault for index, entry in enumerate(entries) for fault in _faults(index, _fields(entry))]


def _fields(entry: Entry | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(entry, Mapping):
        return entry
    return {**msgspec.structs.asdict(entry), "kind": entry.__struct_config__.tag}


def _faults(index: int, entry: Mapping[str, Any]) -> Iterable[Fault]:
    n = entry.get("n")
    if not _is_count(n) or n != index:
        yield Fault(index, "sequence", f"n must be {index}")
    if entry.get("kind") == "cut":
        yield from _cut_faults(index, n if _is_count(n) else index, entry.get("data"))
    try:
        api_json({key: value for key, value in entry.items() if key not in _NUMBERED})
    except CtxError as error:
        yield Fault(index, "json", str(error))


def _cut_faults(index: int, n: int, data: Any) -> Iterable[Fault]:
    before = data.get("before") if isinstance(data, Mapping) else None
    if not _is_count(before) or before > n:
        yield Fault(index, "cut-before", f"before must be an integer from 0 to {n}")


def _is_count(value: object) -> TypeGuard[int]:
    return COUNT.holds(value)
