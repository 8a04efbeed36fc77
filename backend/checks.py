"""Checks of JSON values, and tables of them: the vocabulary in which spec 1.5 and 2.2–2.4 are written down.

Pure. A ``Check`` says what a field must be; a ``Shape`` lists the fields an object needs and those judged only
when present. Unknown keys are always kept. Reasons name fields, never contents.
"""

import errno
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from backend.names import is_model_name, is_name, is_stable_path


class Check(NamedTuple):
    """A predicate over a decoded JSON value, and the words for it."""

    holds: Callable[[Any], bool]
    what: str


class Shape:
    """The fields of an object: needed ones, and those that are checked when present (``may``)."""

    def __init__(self, needs: Mapping[str, Check], may: Mapping[str, Check] | None = None) -> None:
        self.needs = needs.keys()
        self.fields = {**needs, **(may or {})}
        self.checks = {field: check.holds for field, check in self.fields.items()}


def fault_of(shape: Shape, value: Mapping[str, Any]) -> str | None:
    """A field of ``value`` that is missing or wrong, in words; None if all is well."""
    if not shape.needs <= value.keys():
        return f"{min(shape.needs - value.keys())} is missing"
    check_of = shape.checks.get
    for field, item in value.items():
        holds = check_of(field)
        if holds is not None and not holds(item):
            return f"{field} must be {shape.fields[field].what}"
    return None


def shaped(shape: Shape, what: str) -> Check:
    """A check for an object of that shape."""
    return Check(lambda value: type(value) is dict and fault_of(shape, value) is None, what)


def array_of(check: Check, what: str) -> Check:
    """A check for an array whose every item passes."""
    return Check(lambda value: type(value) is list and all(map(check.holds, value)), what)


def one_of(*words: str) -> Check:
    """A check for one of these strings."""
    known = frozenset(words)
    return Check(lambda value: type(value) is str and value in known, "one of " + ", ".join(words))


def either(first: Check, second: Check) -> Check:
    """A check for a value that passes one of two."""
    is_first, is_second = first.holds, second.holds
    return Check(lambda value: is_first(value) or is_second(value), f"{first.what} or {second.what}")


def _text_that(rule: Callable[[str], bool], what: str) -> Check:
    return Check(lambda value: type(value) is str and rule(value), what)


_ERRNO_NAMES = frozenset(name for name in dir(errno) if name.startswith("E"))

ANYTHING = Check(lambda _: True, "any JSON")
NULL = Check(lambda value: value is None, "null")
STRING = Check(lambda value: type(value) is str, "a string")
BOOLEAN = Check(lambda value: type(value) is bool, "a boolean")
NUMBER = Check(lambda value: type(value) in (int, float), "a number")
COUNT = Check(lambda value: type(value) is int and value >= 0, "an integer of at least 0")
OBJECT = Check(lambda value: type(value) is dict, "an object")
ARRAY = Check(lambda value: type(value) is list, "an array")
NUMBERS = Check(lambda value: type(value) is dict and all(map(NUMBER.holds, value.values())), "an object of numbers")
NAME = _text_that(is_name, "a name")
MODEL_NAME = _text_that(is_model_name, "a model name")
STABLE_PATH = _text_that(is_stable_path, "an absolute path without empty, . or .. parts")
ERRNO_NAME = _text_that(_ERRNO_NAMES.__contains__, "an errno name")
