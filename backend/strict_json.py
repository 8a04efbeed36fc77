"""JSON as lines of a log need it: strict at the door, lenient for what is stored, compact on the way out.

Pure functions over bytes. ``strict_object`` holds the rules that every line from outside obeys (spec 1.5,
Common); it never quotes what it refuses. Nothing here knows messages or events.
"""

import json
import math
import re
from typing import Any, NoReturn

import msgspec

from backend.errors import InvalidValue, LineTooLong, SessionError

MAX_LINE = 1 << 20
MAX_FOREIGN_LINE = 16 << 20
MAX_DEPTH = 128
MAX_API_DEPTH = 512
MAX_FOREIGN_DEPTH = 900
"""What the interpreter reads and writes however deep its own stack is: a stored line is always the same entry."""

# As numbers: bytes look for those twice as fast as for bytes.
_LF, _CR, _BACKSLASH, _BRACE, _BRACKET = b"\n\r\\{["
_MAX_DIGITS = 4300  # what CPython reads back from text
_MAX_BITS = 14280
_SCALARS = frozenset((str, bool, type(None)))

_strict = msgspec.json.Decoder().decode
_sorted = msgspec.json.Encoder(order="sorted").encode
_plain = msgspec.json.Encoder().encode  # what it writes again byte for byte has no key twice
_pairs = json.JSONDecoder(object_pairs_hook=lambda pairs: pairs, parse_int=str, parse_float=str).decode
_escaped_nul = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def strict_object(raw: bytes) -> dict[str, Any]:
    """The object that a line from outside holds; ``InvalidValue`` or ``LineTooLong`` by spec 1.5, Common."""
    if len(raw) > MAX_LINE:
        raise LineTooLong("a line has more than 1 MiB: split the content over several lines")
    if _LF in raw or _CR in raw:
        raise InvalidValue("a line must not hold a raw line break")
    return strict_document(raw)


def strict_document(raw: bytes) -> dict[str, Any]:
    """As ``strict_object``, for a document of any size that may hold line breaks (meta.json)."""
    if raw.count(_BRACE) + raw.count(_BRACKET) > MAX_DEPTH and nests_deeper(raw):
        raise InvalidValue(f"JSON must not nest deeper than {MAX_DEPTH}")
    try:
        value = _strict(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidValue(f"not one JSON object: {error}") from None
    if type(value) is not dict:
        raise InvalidValue("not one JSON object: another JSON value")
    if _BACKSLASH in raw and b"\\u0000" in raw and _escaped_nul.search(raw):
        raise InvalidValue("JSON must not hold a NUL, escaped or not")
    if _may_repeat_key(raw, len(value)) and _plain(value) != raw and _repeats_key(raw):
        raise InvalidValue("a top-level key occurs twice")
    return value


def is_suspect(raw: bytes) -> bool:
    """Whether ``strict_object`` may refuse what ``compact`` made of an object of JSON values; False is sure."""
    return len(raw) > MAX_LINE or b"\\u" in raw or raw.count(_BRACE) + raw.count(_BRACKET) > MAX_DEPTH


def lenient_object(raw: bytes) -> dict[str, Any]:
    """The object in a stored or foreign line: any JSON, lone surrogate escapes and huge numbers included.

    ``ValueError`` where the bytes are not UTF-8 or not one JSON object, or nest deeper than ``MAX_FOREIGN_DEPTH``.
    """
    if raw.count(_BRACE) + raw.count(_BRACKET) > MAX_FOREIGN_DEPTH and nests_deeper(raw, MAX_FOREIGN_DEPTH):
        raise ValueError(f"it nests deeper than {MAX_FOREIGN_DEPTH}")
    try:
        value = _strict(raw)
    except (msgspec.MsgspecError, RecursionError):
        value = _lenient(raw)
    if type(value) is not dict:
        raise ValueError("not one JSON object")
    return value


def compact(value: object) -> bytes:
    """Compact JSON of a safe value: keys sorted, non-ASCII unescaped, lone surrogates escaped (spec 2.1)."""
    try:
        return _sorted(value)
    except UnicodeEncodeError:
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode("utf-8", "backslashreplace")


def api_json(value: dict[str, Any]) -> bytes:
    """``compact`` of an object from the API; ``SessionError`` unless it survives a JSON round trip (spec 2.7)."""
    if fault := json_fault(value):
        raise SessionError(f"the payload is not JSON: {fault}")
    try:
        raw = compact(value)
        unpaired = b"\\ud" not in raw or lenient_object(raw) == value
    except (RecursionError, ValueError) as error:
        raise SessionError(f"the payload is not JSON: {type(error).__name__}") from None
    if not unpaired:
        raise SessionError("the payload is not JSON: a surrogate pair in a string, use the character itself")
    if len(raw) > MAX_FOREIGN_LINE:
        raise LineTooLong("an entry has more than 16 MiB: split it")
    return raw


def json_copy(value: Any) -> Any:
    """A copy of a JSON value that shares nothing with it; errors as ``api_json``."""
    return lenient_object(api_json({"value": value}))["value"]


def json_fault(value: object) -> str | None:
    """Why a Python value does not survive a JSON round trip, None if it does; cycles and depth included."""
    todo: list[tuple[object, int]] = [(value, 1)]
    while todo:
        item, depth = todo.pop()
        kind = type(item)
        if kind in _SCALARS:
            continue
        if depth > MAX_API_DEPTH:
            return f"it nests deeper than {MAX_API_DEPTH}, or holds itself"
        if isinstance(item, dict) and kind is dict:
            if not all(type(key) is str for key in item):
                return "a key is not a string"
            todo += [(child, depth + 1) for child in item.values()]
        elif isinstance(item, list) and kind is list:
            todo += [(child, depth + 1) for child in item]
        elif not _is_safe_number(item):
            return f"a value of type {kind.__name__}"
    return None


def _is_safe_number(item: object) -> bool:
    if type(item) is float:
        return math.isfinite(item)
    return type(item) is int and item.bit_length() <= _MAX_BITS


def _may_repeat_key(raw: bytes, keys: int) -> bool:
    """False only if no key can be repeated: there are no more colons after a key, or after white space, than keys."""
    after_keys = raw.count(b'":')
    if after_keys > keys or raw.count(b":") == after_keys:
        return after_keys > keys
    return b" :" in raw or b"\t:" in raw or b"\n:" in raw or b"\r:" in raw


def _repeats_key(raw: bytes) -> bool:
    try:
        pairs = _pairs(raw.decode())
    except RecursionError:
        raise InvalidValue("JSON is nested too deeply to be judged here") from None
    return len({key for key, _ in pairs}) != len(pairs)


_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_FLAT = 8


def nests_deeper(raw: bytes, limit: int = MAX_DEPTH) -> bool:
    """Whether JSON text nests deeper than ``limit``."""
    brackets = _STRINGS.sub(b"", raw).translate(_ONE_KIND, _NO_BRACKETS)
    # Each round takes the innermost level away, at C's speed: most text that has many brackets is flat.
    for _ in range(_FLAT):
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets) and _climbs_above(limit - _FLAT, brackets)


def _climbs_above(limit: int, brackets: bytes) -> bool:
    depth = 0
    for bracket in brackets:
        depth += 1 if bracket == _BRACKET else -1
        if depth > limit:
            return True
    return False


def _lenient(raw: bytes) -> Any:
    try:
        return _lenient_decode(raw.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _any_int(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


_lenient_decode = json.JSONDecoder(parse_constant=_no_constant, parse_int=_any_int).decode


def text_bytes(text: str) -> bytes:
    """Text as the content of a file: NUL and lone surrogates as JSON escapes (spec 1.5, last point)."""
    return text.encode("utf-8", "backslashreplace").replace(b"\0", b"\\u0000")
