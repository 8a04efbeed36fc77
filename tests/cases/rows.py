"""Rows of a case file, and how an answer is compared with what a row expects."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Mismatch(Exception):
    """The product answers something else."""


class Row(NamedTuple):
    """A line of the file; its id is its number where it names none."""

    id: str
    raw: bytes


def read_rows(content: bytes) -> list[Row]:
    """The lines that are not blank. Only a line feed ends one: strings may hold every other line break."""
    lines = enumerate(content.split(b"\n"), 1)
    return [Row(_id_of(raw) or str(number), raw) for number, raw in lines if raw.strip()]


def check(row: Row, check_row: Callable[[dict[str, Any]], None]) -> str | None:
    """Why a row fails, None if it does not."""
    try:
        check_row(json.loads(row.raw))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def expect(what: str, found: Any, expected: Any) -> None:
    """Raises ``Mismatch`` unless both are the same JSON value."""
    if not same(found, expected):
        raise Mismatch(f"{what} is {found!r}, not {expected!r}")


def same(a: Any, b: Any) -> bool:
    """Whether two JSON values are equal: 1 is 1.0 and is not true."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _id_of(raw: bytes) -> str | None:
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    return str(value["id"]) if isinstance(value, dict) and "id" in value else None
