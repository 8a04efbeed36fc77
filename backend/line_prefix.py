"""Judges a line that is not finished yet, piece by piece (spec 1.4: impossible bytes fail in the write itself).

``LinePrefix`` holds the unfinished rest of one writer and refuses it as soon as no bytes that may follow could make
it a valid line: at each byte by JSON's grammar, UTF-8, escapes and depth; at the end of each top-level value
by the rules for that field and for repeated keys; at the end of the object by all of spec 1.5. The cost of many
small pieces together is linear in their bytes. It keeps the bytes, and little beside them. Not thread-safe.
"""

import codecs
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from backend.errors import InvalidValue, LineTooLong
from backend.line_rules import event_shape
from backend.line_shapes import MESSAGE
from backend.lines import BUILT_IN_MARKS, parse_line
from backend.marks import Marks
from backend.rows import Stream
from backend.strict_json import MAX_DEPTH, MAX_LINE

_MAX_KEYS = 1024  # beyond so many, a repeated key is found when the object ends

_DIGITS = b"0123456789"
_HEX = b"0123456789abcdefABCDEF"
_BLANK = b" \t"


_Rule = tuple[str, bytes, str]  # in this state, any of these bytes, leads to that state


class _State(dict[int, "_State | str"]):
    """What each byte leads to: another state, or an action by its name."""


def _table(*rules: _Rule) -> Mapping[str, _State]:
    table = {state: _State() for state, _, _ in rules}
    for state, accepted, following in rules:
        table[state].update(dict.fromkeys(accepted, table.get(following, following)))
    return table


def _value_rules(state: str) -> tuple[_Rule, ...]:
    return (
        (state, _BLANK, state),
        (state, b'"', "<string>"),
        (state, b"{[", "<open>"),
        (state, b"-", "minus"),
        (state, b"0", "zero"),
        (state, b"123456789", "integer"),
        (state, b"t", "t"),
        (state, b"f", "f"),
        (state, b"n", "n"),
    )


def _literal_rules(word: str, end: str) -> tuple[_Rule, ...]:
    return tuple(
        (word[:size], word[size].encode(), word[: size + 1] if size + 1 < len(word) else end)
        for size in range(1, len(word))
    )


_STRING_RULES: tuple[_Rule, ...] = (
    ("string", b'"', "<quote>"),
    ("string", b"\\", "escape"),
    ("escape", b'"\\/bfnrt', "<string>"),
    ("escape", b"u", "hex 1"),
    # four hex digits that are not 0000, nor a low surrogate
    ("hex 1", _HEX, "hex 2"),
    ("hex 1", b"0", "nul 2"),
    ("hex 1", b"dD", "surrogate 2"),
    ("hex 2", _HEX, "hex 3"),
    ("hex 3", _HEX, "hex 4"),
    ("hex 4", _HEX, "<string>"),
    ("nul 2", _HEX, "hex 3"),
    ("nul 2", b"0", "nul 3"),
    ("nul 3", _HEX, "hex 4"),
    ("nul 3", b"0", "nul 4"),
    ("nul 4", _HEX.replace(b"0", b""), "<string>"),
    ("surrogate 2", b"01234567", "hex 3"),
    ("surrogate 2", b"89abAB", "high 3"),
    # after a high surrogate only a low one
    ("high 3", _HEX, "high 4"),
    ("high 4", _HEX, "pair"),
    ("pair", b"\\", "pair escape"),
    ("pair escape", b"u", "low 1"),
    ("low 1", b"dD", "low 2"),
    ("low 2", b"cdefCDEF", "hex 3"),
)
_NUMBER_RULES: tuple[_Rule, ...] = (
    ("minus", b"0", "zero"),
    ("minus", b"123456789", "integer"),
    ("zero", b".", "point"),
    ("zero", b"eE", "exponent"),
    ("integer", _DIGITS, "integer"),
    ("integer", b".", "point"),
    ("integer", b"eE", "exponent"),
    ("point", _DIGITS, "fraction"),
    ("fraction", _DIGITS, "fraction"),
    ("fraction", b"eE", "exponent"),
    ("exponent", b"+-", "exponent sign"),
    ("exponent", _DIGITS, "power"),
    ("exponent sign", _DIGITS, "power"),
    ("power", _DIGITS, "power"),
)
_WHOLE_NUMBERS = ("zero", "integer", "fraction", "power")
_OBJECT_RULES: tuple[_Rule, ...] = (
    ("first key", _BLANK, "first key"),
    ("first key", b'"', "<key>"),
    ("first key", b"}", "<close>"),
    ("next key", _BLANK, "next key"),
    ("next key", b'"', "<key>"),
    ("colon", _BLANK, "colon"),
)


def _delimiter_rules(state: str, comma: str, close: bytes) -> tuple[_Rule, ...]:
    return ((state, _BLANK, "after"), (state, b",", comma), (state, close, "<close>"))


def _context(value_end: str, *rules: _Rule) -> Mapping[str, _State]:
    """The table of a kind of container: what all have in common, and its own rules."""
    literals = (rule for word in ("true", "false", "null") for rule in _literal_rules(word, value_end))
    return _table(*_STRING_RULES, *_NUMBER_RULES, *literals, *_value_rules("value"), *rules)


# Per kind of container, the state that a byte leads to; states in angle brackets are actions of LinePrefix. Only the
# line's own object acts on keys, colons and ends of values; runs of nested values that are whole are skipped at once.
_OUTSIDE = _table(("start", _BLANK, "start"), ("start", b"{", "<open>"), ("done", _BLANK, "done"))
_LINE = _context("<value>", *_OBJECT_RULES, ("colon", b":", "<colon>"), *_delimiter_rules("after", "next key", b"}"))
_OBJECT = _context(
    "after",
    *_OBJECT_RULES,
    ("colon", b":", "value"),
    *(rule for state in ("after", *_WHOLE_NUMBERS) for rule in _delimiter_rules(state, "<next>", b"}")),
)
_ARRAY = _context(
    "after",
    *_value_rules("first item"),
    ("first item", b"]", "<close>"),
    *(rule for state in ("after", *_WHOLE_NUMBERS) for rule in _delimiter_rules(state, "<next>", b"]")),
)

_SPACE = r"[ \t]*+"
_ESCAPED = (
    r'\\(?:["\\/bfnrt]|u(?:(?!0000|[dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
)
_TEXT = rf'(?:[^"\\\x00-\x1f]++|{_ESCAPED})*+'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+(?=[ \t,\]}])"


def _listed(item: str) -> str:
    return rf"{_SPACE}{item}(?:{_SPACE},{_SPACE}{item})*+"


def _member(value: str) -> str:
    return rf'"{_TEXT}"{_SPACE}:{_SPACE}{value}'


def _nested(value: str) -> str:
    """A value, or a container of such values."""
    return rf"(?>{value}|\[(?:{_listed(value)})?+{_SPACE}\]|\{{(?:{_listed(_member(value))})?+{_SPACE}\}})"


_SKIPPED_LEVELS = 2
_VALUE = _nested(_nested(rf'(?>"{_TEXT}"|{_NUMBER}|true|false|null)'))
_STRING_RUN = re.compile(_TEXT.encode())
_ITEM_RUN = re.compile(_listed(_VALUE).encode())
_MEMBER_RUN = re.compile(_listed(_member(_VALUE)).encode())


class LinePrefix:
    """The unfinished rest of a handle's writes, without any newline."""

    def __init__(self, stream: Stream, *, scope: str | None = None, marks: Marks = BUILT_IN_MARKS) -> None:
        self._stream: Stream = stream
        self._scope = scope
        self._marks = marks
        self._raw = bytearray()
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._shape = MESSAGE if stream == "messages" else None
        self._table = _OUTSIDE
        self._state = _OUTSIDE["start"]
        self._open: list[Mapping[str, _State]] = []
        self._in_key = False
        self._key_start = 0
        self._value_start = 0
        self._key = ""
        self._keys: set[str] = set()
        self._unjudged: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._raw)

    @property
    def raw(self) -> bytes:
        """What was fed so far."""
        return bytes(self._raw)

    def feed(self, piece: bytes) -> None:
        """Takes more of the line, or raises ``InvalidValue`` or ``LineTooLong``; after that, drop this object."""
        if not piece:
            return
        start = len(self._raw)
        if start + len(piece) > MAX_LINE:
            raise LineTooLong("a line has more than 1 MiB: split the content over several lines")
        self._check_utf8(piece)
        self._raw += piece
        in_string = self._state is self._table.get("string")
        self._scan(self._skip_string(start)[1] if in_string else start)

    def _check_utf8(self, piece: bytes) -> None:
        try:
            self._utf8.decode(piece)
        except UnicodeDecodeError:
            raise InvalidValue("a line must be UTF-8") from None
        pending = self._utf8.getstate()[0]
        if pending[:1] == b"\xed" and pending[1:2] >= b"\xa0":
            raise InvalidValue("a line must be UTF-8")

    def _scan(self, position: int) -> None:
        raw, end, state = self._raw, len(self._raw), self._state
        while position < end:
            following = state.get(raw[position])
            position += 1
            if type(following) is _State:
                state = following
            elif type(following) is str:
                state, position = _ACTIONS[following](self, position)
            elif self._table is _LINE and any(state is _LINE[number] for number in _WHOLE_NUMBERS):
                position -= 1
                state, _ = self._end_value(position)
            else:
                raise InvalidValue(f"no line begins like this: byte {position - 1} cannot follow")
        self._state = state

    def _skip_string(self, position: int) -> tuple[_State, int]:
        run = _STRING_RUN.match(self._raw, position)
        return self._table["string"], position if run is None else run.end()

    def _open_container(self, position: int) -> tuple[_State, int]:
        if len(self._open) == MAX_DEPTH:
            raise InvalidValue(f"JSON must not nest deeper than {MAX_DEPTH}")
        is_array = self._raw[position - 1] == ord("[")
        self._open.append(self._table)
        self._table = _ARRAY if is_array else _OBJECT if len(self._open) > 1 else _LINE
        return self._skip_values(position, "first item" if is_array else "first key")

    def _begin_next(self, position: int) -> tuple[_State, int]:
        return self._skip_values(position, "value" if self._table is _ARRAY else "next key")

    def _skip_values(self, position: int, otherwise: str) -> tuple[_State, int]:
        """Past all that is whole of a nested container's values, or to the state ``otherwise`` if the first is not."""
        run = None
        if self._table is not _LINE and len(self._open) <= MAX_DEPTH - _SKIPPED_LEVELS:
            run = (_ITEM_RUN if self._table is _ARRAY else _MEMBER_RUN).match(self._raw, position)
        return (self._table[otherwise], position) if run is None else (self._table["after"], run.end())

    def _close_container(self, position: int) -> tuple[_State, int]:
        self._table = self._open.pop()
        if self._open:
            return self._end_value(position)
        parse_line(self._stream, self.raw, scope=self._scope, marks=self._marks)
        return self._table["done"], position

    def _begin_key(self, position: int) -> tuple[_State, int]:
        self._in_key = True
        self._key_start = position - 1
        return self._skip_string(position)

    def _end_string(self, position: int) -> tuple[_State, int]:
        if not self._in_key:
            return self._end_value(position)
        self._in_key = False
        if self._table is _LINE:
            self._add_key(str(self._decode(self._key_start, position)))
        return self._table["colon"], position

    def _add_key(self, key: str) -> None:
        if key in self._keys:
            raise InvalidValue("a top-level key occurs twice")
        self._key = key
        if len(self._keys) < _MAX_KEYS:
            self._keys.add(key)

    def _begin_value(self, position: int) -> tuple[_State, int]:
        self._value_start = position
        return self._table["value"], position

    def _end_value(self, position: int) -> tuple[_State, int]:
        if self._table is _LINE and self._key in self._keys:
            self._judge(self._key, self._value_start, position)
        return self._table["after"], position

    def _judge(self, key: str, start: int, end: int) -> None:
        """Judges a top-level value by its field's rule: an event's as soon as its type is known."""
        self._unjudged[key] = (start, end)
        if self._stream == "events" and key == "type":
            self._shape = event_shape(self._decode(start, end))
        if self._shape is None:
            return
        for field, span in self._unjudged.items():
            check = self._shape.fields.get(field)
            if check and not check.holds(self._decode(*span)):
                raise InvalidValue(f"{self._stream}.jsonl: {field} must be {check.what}")
        self._unjudged.clear()

    def _decode(self, start: int, end: int) -> Any:
        try:
            return msgspec.json.decode(self._raw[start:end])
        except msgspec.MsgspecError as error:
            raise InvalidValue(f"not one JSON object: {error}") from None


_ACTIONS: Mapping[str, Callable[[LinePrefix, int], tuple[_State, int]]] = {
    "<open>": LinePrefix._open_container,
    "<close>": LinePrefix._close_container,
    "<next>": LinePrefix._begin_next,
    "<key>": LinePrefix._begin_key,
    "<string>": LinePrefix._skip_string,
    "<quote>": LinePrefix._end_string,
    "<value>": LinePrefix._end_value,
    "<colon>": LinePrefix._begin_value,
}
