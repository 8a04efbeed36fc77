"""Strict JSON in UTF-8 and the values that it stands for (spec 5). ``ValueError``: it is not JSON.

The module ``json`` imports ``re``, and that alone takes as long as clearing a hundred sessions. So its scanner and its
encoder in C are used without it, as it uses them; what the scanner cannot read goes to ``json`` to be told why.
"""

from __future__ import annotations

from _json import encode_basestring, make_encoder, make_scanner
from types import SimpleNamespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    ObjectOf = Callable[[list[tuple[str, Any]]], Any]
    """What an object becomes, by its fields in order."""

MAX_U64 = (1 << 64) - 1

_BLANKS = " \t\n\r"
_INFINITIES = (float("inf"), float("-inf"))


def loads(raw: bytes, object_of: ObjectOf | None = None) -> Any:
    """One JSON value of any size; ``object_of`` makes its objects."""
    value = _decoded(raw.decode(), object_of)
    if b"\\ud" in raw or b"\\uD" in raw:
        _check_surrogates(value)
    return value


def dumps(value: Any) -> str:
    """A value as JSON on one line, characters as they are."""
    return "".join(_encode(value, 0))


def shallow(decode: Callable[..., Any]) -> Callable[..., Any]:
    """``decode``, for which nesting too deeply is as wrong as anything else."""

    def decoded(*args: Any) -> Any:
        try:
            return decode(*args)
        except RecursionError:
            raise ValueError("nested too deeply") from None

    return decoded


@shallow
def _decoded(text: str, object_of: ObjectOf | None) -> Any:
    hooks: dict[str, Any] = {"object_pairs_hook": object_of, "parse_float": _finite, "parse_constant": _no_constant}
    settings: Any = SimpleNamespace(strict=True, object_hook=None, parse_int=int, **hooks)
    try:
        value, end = make_scanner(settings)(text, len(text) - len(text.lstrip(_BLANKS)))
    except (StopIteration, ValueError, SystemError):  # the last is how 3.11 misses the error that ``json`` would have
        end = -1
    if end >= 0 and not text[end:].strip(_BLANKS):
        return value
    import json

    return json.loads(text, **hooks)


def _finite(text: str) -> float:
    if (number := float(text)) in _INFINITIES:
        raise ValueError("a number is out of range")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _check_surrogates(value: Any) -> None:
    """Pairs have become characters when JSON was read; what is left of them is text that nobody can encode."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict):
        for key, item in value.items():
            key.encode()
            _check_surrogates(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_surrogates(item)


def _refused(value: Any) -> Any:
    raise TypeError(f"{value!r} has no JSON")


_encode = make_encoder(None, _refused, encode_basestring, None, ":", ",", False, False, False)
