"""JSON documents of up to 32 MiB in little memory (spec 5: one request stays below 160 MiB).

Small documents become Python values. A larger one stays the bytes that it is (``Large``): its objects give their known
fields, its arrays their items some at a time, and only what is small becomes a value. ``ValueError`` is raised for
whatever is not JSON, wherever it is met; invalid UTF-8 always before anything else.
"""

from __future__ import annotations

import codecs
import functools
import json
import math
import re
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SMALL = 256 << 10

_CHUNK = 1 << 20
_HEAD = 512 << 10
_MAX_SPLIT = 400_000  # items of an array that may be told apart at once: 64 bytes of memory each

# Long runs first; what follows \ is never looked at. Flat objects are one token: most items are.
_STRING = rb'"(?>[^"\\]+|\\.)*+"'
_tokens = re.compile(rb'\{(?>[^"{}\[\]]+|' + _STRING + rb")*+\}|" + _STRING + rb"|[\[\]{},]", re.DOTALL).finditer
_surrogate = re.compile(rb"\\u[dD][89a-fA-F]")
_cuts = re.compile(rb'(?<=[^\\]{12})[^\\"\x80-\xbf]')


class Large:
    """JSON text that is too large to become a value at once; valid as far as its syntax goes."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes | memoryview) -> None:
        self._raw = memoryview(raw)

    @property
    def kind(self) -> type:
        """What it would be as a value."""
        return {ord("{"): dict, ord("["): list, ord('"'): str}.get(self._raw[0], object)

    def fields(self, names: frozenset[str]) -> dict[str, Any]:
        """Those of the fields that an object has; of a repeated one the last."""
        found = _decoder(names)(self._raw)
        return {name: _value(raw) for name in names if (raw := getattr(found, name)) is not None}

    def items(self) -> Iterator[Any]:
        """The items of an array."""
        if _count(self._raw, b",") < _MAX_SPLIT:
            yield from map(_value, _splitter()(self._raw))
            return
        run = item = 1  # where the items that are not given yet begin, and where the current one does
        for end in self._item_ends():
            if end - item > SMALL:
                yield from loads(b"[%b]" % bytes(self._raw[run : max(run, item - 1)]))
                yield Large(_stripped(self._raw[item:end]))
                run = end + 1
            elif end - run > SMALL or end == len(self._raw) - 1:
                yield from loads(b"[%b]" % bytes(self._raw[run:end]))
                run = end + 1
            item = end + 1

    def value(self) -> Any:
        """All of it as a value, in whatever memory that takes."""
        return loads(bytes(self._raw))

    def ends(self) -> str:
        """A string's beginning and end, half a MiB each and without what is between them."""
        inner = self._raw[1:-1]
        head = _cuts.search(inner, _HEAD)
        tail = _cuts.search(inner, max(0, len(inner) - _HEAD))
        if head is None or tail is None or tail.start() <= head.start():
            return str(loads(bytes(self._raw)))
        return str(loads(b'"%b%b"' % (bytes(inner[: head.start()]), bytes(inner[tail.start() :]))))

    def _item_ends(self) -> Iterator[int]:
        """Where the commas between an array's items are, and its closing bracket."""
        depth = 0
        for token in _tokens(self._raw):
            if token.end() - token.start() > 1:
                continue
            mark = token[0]
            if mark in (b"[", b"{"):
                depth += 1
            elif mark in (b"]", b"}"):
                depth -= 1
            if (depth == 1 and mark == b",") or depth == 0:
                yield token.start()


def parse(raw: bytes) -> Any:
    """A document's value, or ``Large``."""
    if len(raw) <= SMALL:
        return loads(raw)
    _check_encoding(raw)
    document = Large(_stripped(memoryview(raw)))
    if document.kind is not dict:  # which is judged as a whole when its fields are taken
        _check_syntax()(raw)
    return document


def loads(raw: bytes, object_of: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """One JSON value from strict JSON in UTF-8, of any size; ``object_of`` makes its objects."""
    try:
        value = _decode(raw.decode()) if object_of is None else _decoder_with(object_of)(raw.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if _surrogate.search(raw):
        _check_surrogates(value)
    return value


def is_text(value: Any) -> bool:
    """Whether a value is a string."""
    return type(value) is str or (type(value) is Large and value.kind is str)


def is_list(value: Any) -> bool:
    """Whether a value is an array."""
    return type(value) is list or (type(value) is Large and value.kind is list)


def is_object(value: Any) -> bool:
    """Whether a value is an object."""
    return type(value) is dict or (type(value) is Large and value.kind is dict)


def fields(value: Any, names: frozenset[str]) -> dict[str, Any]:
    """An object's fields; of a large one only those of ``names``."""
    found: dict[str, Any] = value.fields(names) if type(value) is Large else value
    return found


def items(value: Any) -> Iterator[Any]:
    """The items of an array."""
    return value.items() if type(value) is Large else iter(value)


def ends(value: Any) -> str:
    """A string, or the two ends of a large one."""
    return value.ends() if type(value) is Large else str(value)


def _count(view: memoryview, byte: bytes) -> int:
    return sum(bytes(view[start : start + _CHUNK]).count(byte) for start in range(0, len(view), _CHUNK))


def _value(raw: Any) -> Any:
    view = memoryview(raw)
    return loads(bytes(view)) if len(view) <= SMALL else Large(_stripped(view))


def _stripped(view: memoryview) -> memoryview:
    start, end = 0, len(view)
    while view[start] in b" \t\r\n":
        start += 1
    while view[end - 1] in b" \t\r\n":
        end -= 1
    return view[start:end]


def _check_encoding(raw: bytes) -> None:
    """A piece at a time: the text as a whole may take four times the memory of its bytes."""
    decoder, view = codecs.getincrementaldecoder("utf-8")(), memoryview(raw)
    for start in range(0, len(raw), _CHUNK):
        decoder.decode(view[start : start + _CHUNK])
    decoder.decode(b"", final=True)


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


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError("a number is out of range")
    return number


def _decoder_with(object_of: Callable[[list[tuple[str, Any]]], Any] | None) -> Callable[[str], Any]:
    return json.JSONDecoder(object_pairs_hook=object_of, parse_constant=_no_constant, parse_float=_finite).decode


_decode = _decoder_with(None)


@functools.cache
def _check_syntax() -> Callable[[bytes], Any]:
    import msgspec

    return msgspec.json.Decoder(msgspec.Raw).decode


@functools.cache
def _splitter() -> Callable[[memoryview], Any]:
    import msgspec

    return msgspec.json.Decoder(list[msgspec.Raw]).decode


@functools.cache
def _decoder(names: frozenset[str]) -> Callable[[memoryview], Any]:
    import msgspec

    known = msgspec.defstruct("Known", [(name, msgspec.Raw, None) for name in sorted(names)])
    return msgspec.json.Decoder(known).decode
