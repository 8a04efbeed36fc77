"""The golden cases can fail: whatever function of the log's rules is broken, at least one of them does.

A function is broken where it is, so that it does not matter who holds a reference to it. It also proves that the cases
drive the product's own modules.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from backend import digest, invariants, projection, requests
from tests.cases.log import check_row
from tests.cases.rows import check, read_rows

ROWS = read_rows(Path(__file__).with_name("log.jsonl").read_bytes())


def functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """The functions and methods that a module defines."""
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    for holder in (module, *(value for value in own if isinstance(value, type))):
        for value in vars(holder).values():
            function = value.fget if isinstance(value, property) else value
            if (
                isinstance(function, FunctionType)
                and function.__module__ == module.__name__
                and not _measures(function)
            ):
                yield f"{module.__name__}.{function.__qualname__}", function


def _measures(function: FunctionType) -> bool:
    """Whether it says what is held in memory, which is no answer about a log."""
    return function.__name__ == "memory"


ALL = [found for module in (projection, digest, invariants, requests) for found in functions(module)]


def nothing(*_arguments: Any, **_named: Any) -> None:
    """Does nothing, and answers nothing."""


def fail(*_arguments: Any, **_named: Any) -> None:
    raise RuntimeError("broken")


@contextmanager
def broken(function: FunctionType, by: Callable[..., None]) -> Iterator[None]:
    whole = function.__code__
    function.__code__ = by.__code__
    try:
        yield
    finally:
        function.__code__ = whole


def fails() -> bool:
    return any(check(row, lambda row: check_row(row, "memory")) for row in ROWS)


@pytest.mark.parametrize("by", [nothing, fail])
@pytest.mark.parametrize("function", [function for _, function in ALL], ids=[name for name, _ in ALL])
def test_a_broken_function_makes_a_case_fail(function: FunctionType, by: Callable[..., None]) -> None:
    with broken(function, by):
        assert fails()


def test_nothing_is_broken_otherwise() -> None:
    assert not fails()
    assert {"project", "advance", "prompt_digest", "check_invariants"} <= {name.rpartition(".")[2] for name, _ in ALL}
