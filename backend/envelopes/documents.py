"""JSON documents of up to 32 MiB in little memory (spec 5: one request stays below 160 MiB).

Small documents become Python values. A larger one stays the bytes that it is (``Large``): its objects give their known
fields, its arrays their items some at a time, and only what is small becomes a value. ``ValueError`` is raised for
whatever is not JSON, wherever it is met; invalid UTF-8 always before anything else.
"""

from __future__ import annotations

import codecs
import functools

from backend.envelopes.strict import loads, shallow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

SMALL = 256 << 10

_CHUNK = 1 << 20
_HEAD = 512 << 10
_DEPTH = 6  # of what is passed over in one step; a message nests four deep


class Large:
    """JSON text that is too large to become a value at once; valid as far as its syntax goes."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes | memoryview) -> None:
        self._raw = memoryview(raw)

    @property
    def kind(self) -> type:
        """What it would be as a value."""
        return {ord("{"): dict, ord("["): list, ord('"'): str}.get(self._raw[0], object)

    @property
    def is_text(self) -> bool:
        """Whether it is a string; without a look at its escapes and control characters it may not have been one."""
        return self.kind is str and _patterns().text(self._raw) is not None

    def fields(self, names: frozenset[str]) -> dict[str, Any]:
        """Those of the fields that an object has; of a repeated one the last."""
        found = _decoder(names)(self._raw)
        return {name: _value(raw) for name in names if (raw := getattr(found, name)) is not None}

    def runs(self) -> Iterator[bytes | Large]:
        """The items of an array: arrays of as many as are small together, and each large one."""
        at, last = _after_space(self._raw, 1), len(self._raw) - 1
        while at < last:
            end = self._end_of_run(at, last)
            run = self._raw[at:end]
            yield b"[%b]" % bytes(run) if len(run) <= SMALL else Large(_stripped(run))
            at = _after_space(self._raw, end + 1)

    def items(self) -> Iterator[Any]:
        """The items of an array."""
        for run in self.runs():
            yield from members(run)

    def value(self) -> Any:
        """All of it as a value, in whatever memory that takes."""
        return loads(bytes(self._raw))

    def ends(self) -> str:
        """A string's beginning and end, half a MiB each and without what is between them."""
        inner = self._raw[1:-1]
        head = _patterns().cut(inner, _HEAD)
        tail = _patterns().cut(inner, max(0, len(inner) - _HEAD))
        if head is None or tail is None or tail.start() <= head.start():
            return str(loads(bytes(self._raw)))
        return str(loads(b'"%b%b"' % (bytes(inner[: head.start()]), bytes(inner[tail.start() :]))))

    def _end_of_run(self, at: int, last: int) -> int:
        """Where the comma or bracket is after the items at ``at`` that are small together; after one at least."""
        if last - at <= SMALL:
            return last
        found = _patterns().items(self._raw, at, at + SMALL).end()
        return found - 1 if found > at else self._end_of_item(at)

    def _end_of_item(self, at: int) -> int:
        """Where the comma or bracket is after an item of any size and depth."""
        depth = 0
        while True:
            step = _patterns().between if depth else _patterns().item
            at = step(self._raw, at).end()
            mark = self._raw[at]
            if mark in b"[{":
                depth += 1
            elif not depth:
                return at
            else:
                depth -= 1
            at += 1


def parse(raw: bytes) -> Any:
    """A document's value, or ``Large``."""
    if len(raw) <= SMALL:
        return loads(raw)
    _check_encoding(raw)
    document = Large(_stripped(memoryview(raw)))
    if document.kind is not dict:  # which is judged as a whole when its fields are taken
        _check_syntax()(raw)
    return document


def is_text(value: Any) -> bool:
    """Whether a value is a string, of characters that there are."""
    return type(value) is str or (type(value) is Large and value.is_text)


def is_list(value: Any) -> bool:
    """Whether a value is an array."""
    return type(value) is list or (type(value) is Large and value.kind is list)


def is_object(value: Any) -> bool:
    """Whether a value is an object."""
    return type(value) is dict or (type(value) is Large and value.kind is dict)


def whole(value: Any) -> Any:
    """A value, in whatever memory that takes (``ValueError``: what nobody has looked at yet is no JSON)."""
    return value.value() if type(value) is Large else value


def fields(value: Any, names: frozenset[str]) -> dict[str, Any]:
    """An object's fields; of a large one only those of ``names``."""
    found: dict[str, Any] = value.fields(names) if type(value) is Large else value
    return found


def items(value: Any) -> Iterator[Any]:
    """The items of an array."""
    return value.items() if type(value) is Large else iter(value)


def runs(value: Any) -> Iterator[Any]:
    """The items of an array, some at a time: a list, or what ``Large.runs`` gives."""
    return value.runs() if type(value) is Large else iter((value,))


def members(run: Any) -> Iterable[Any]:
    """The items of a run."""
    items: Iterable[Any] = (run,) if type(run) is Large else loads(run) if type(run) is bytes else run
    return items


def ends(value: Any) -> str:
    """A string, or the two ends of a large one."""
    return value.ends() if type(value) is Large else str(value)


def _value(raw: Any) -> Any:
    view = memoryview(raw)
    return loads(bytes(view)) if len(view) <= SMALL else Large(_stripped(view))


def _after_space(view: memoryview, at: int) -> int:
    end: int = _patterns().space(view, at).end()
    return end


def _stripped(view: memoryview) -> memoryview:
    start, end = _after_space(view, 0), len(view)
    while end > start:
        last = bytes(view[max(start, end - _CHUNK) : end])
        blanks = len(last) - len(last.rstrip(b" \t\r\n"))
        end -= blanks
        if blanks < len(last):
            return view[start:end]
    raise ValueError("there is nothing but blanks")


def _check_encoding(raw: bytes) -> None:
    """A piece at a time: the text as a whole may take four times the memory of its bytes."""
    decoder, view = codecs.getincrementaldecoder("utf-8")(), memoryview(raw)
    for start in range(0, len(raw), _CHUNK):
        decoder.decode(view[start : start + _CHUNK])
    decoder.decode(b"", final=True)


class _Patterns:
    """What is looked for in large documents; compiled when the first one is met.

    Possessive all of them: what they match they never give back, so that time is linear and memory constant.
    """

    def __init__(self) -> None:
        import re

        text = rb'"(?>[^"\\]+|\\.)*+"'
        nested = rb"[\[{](?>[^\"\[\]{}]+|" + text + rb")*+[\]}]"
        for _ in range(_DEPTH - 1):
            nested = rb"[\[{](?>[^\"\[\]{}]+|" + text + rb"|" + nested + rb")*+[\]}]"
        item = rb"(?>[^\"\[\]{},]+|" + text + rb"|" + nested + rb")*+"
        escape = rb'\\(?>["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|u[dD][89abAB]..\\u[dD][c-fC-F][0-9a-fA-F]{2})'

        def compiled(pattern: bytes) -> Any:
            return re.compile(pattern, re.DOTALL)

        self.space = compiled(rb"[ \t\r\n]*+").match
        self.item = compiled(item).match
        self.items = compiled(rb"(?>" + item + rb",)*+").match
        self.between = compiled(rb"(?>[^\"\[\]{}]+|" + text + rb"|" + nested + rb")*+").match
        self.text = compiled(rb'"(?>[^"\\\x00-\x1f]+|' + escape + rb')*+"').fullmatch
        self.cut = compiled(rb'(?<=[^\\]{12})[^\\"\x80-\xbf]').search


_patterns = functools.cache(_Patterns)


@functools.cache
def _check_syntax() -> Callable[[Any], Any]:
    import msgspec

    return shallow(msgspec.json.Decoder(msgspec.Raw).decode)


@functools.cache
def _decoder(names: frozenset[str]) -> Callable[[Any], Any]:
    import msgspec

    known = msgspec.defstruct("Known", [(name, msgspec.Raw, None) for name in sorted(names)])
    return shallow(msgspec.json.Decoder(known).decode)
