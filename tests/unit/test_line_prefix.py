"""Unfinished lines: every prefix of a valid line passes, impossible bytes fail at once (spec 1.4)."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import CtxError, InvalidValue, LineTooLong
from backend.line_prefix import LinePrefix
from backend.lines import parse_line
from backend.rows import Stream
from backend.strict_json import MAX_DEPTH, MAX_LINE
from tests.unit.test_line_entries import OBJECTS
from tests.unit.test_line_json import JSON_ACCEPTED, JSON_REFUSED
from tests.unit.test_lines import (
    EVENTS_ACCEPTED,
    EVENTS_REFUSED,
    MESSAGES_ACCEPTED,
    MESSAGES_REFUSED,
    dumped,
)

VALID: list[tuple[Stream, bytes]] = [
    *(("messages", dumped(value)) for value in MESSAGES_ACCEPTED),
    *(("events", dumped(value)) for value in EVENTS_ACCEPTED),
    *(("messages", raw) for raw in JSON_ACCEPTED),
]


def fed(stream: Stream, *pieces: bytes) -> LinePrefix:
    prefix = LinePrefix(stream, scope="private")
    for piece in pieces:
        prefix.feed(piece)
    return prefix


def one_by_one(stream: Stream, raw: bytes) -> LinePrefix:
    return fed(stream, *(raw[n : n + 1] for n in range(len(raw))))


@pytest.mark.parametrize(("stream", "raw"), VALID, ids=lambda value: repr(value)[:60])
def test_a_valid_line_passes_byte_by_byte(stream: Stream, raw: bytes) -> None:
    prefix = one_by_one(stream, raw)
    assert (prefix.raw, len(prefix)) == (raw, len(raw))


@given(OBJECTS, st.booleans(), st.data())
def test_a_valid_line_passes_in_any_pieces(extra: dict[str, Any], ascii_only: bool, data: st.DataObject) -> None:
    text = json.dumps(extra | {"role": "user", "content": "x"}, ensure_ascii=ascii_only)
    raw = text.encode(errors="replace")
    try:
        parse_line("messages", raw)
    except CtxError:
        return
    pieces: list[bytes] = []
    rest = raw
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        pieces.append(rest[:size])
        rest = rest[size:]
    assert fed("messages", *pieces).raw == raw


@given(st.sampled_from(["messages", "events"]), st.binary(max_size=60) | OBJECTS.map(dumped))
def test_pieces_make_no_difference(stream: Stream, raw: bytes) -> None:
    def passes(*pieces: bytes) -> bool:
        try:
            fed(stream, *pieces)
        except CtxError:
            return False
        return True

    assert passes(raw) == passes(*(raw[n : n + 1] for n in range(len(raw))))


@pytest.mark.parametrize(
    ("stream", "value"),
    [
        *(("messages", value) for value in MESSAGES_REFUSED),
        *(("events", value) for value in EVENTS_REFUSED),
    ],
    ids=str,
)
def test_an_invalid_object_fails_when_it_ends_at_the_latest(stream: Stream, value: Any) -> None:
    with pytest.raises(InvalidValue):
        fed(stream, dumped(value))


# what cannot be completed, and the number of bytes that can
IMPOSSIBLE: list[tuple[Stream, bytes, int]] = [
    ("messages", b"garbage", 0),
    ("messages", b"  garbage", 2),
    ("messages", b"[", 0),
    ("messages", b'"', 0),
    ("messages", b"\n", 0),
    ("messages", b"\r", 0),
    ("messages", b"\0", 0),
    ("messages", b"\xef\xbb\xbf{", 0),
    ("messages", b"{]", 1),
    ("messages", b"{,", 1),
    ("messages", b"{1", 1),
    ("messages", b"{'", 1),
    ("messages", b'{"a"}', 4),
    ("messages", b'{"a",', 4),
    ("messages", b'{"a":}', 5),
    ("messages", b'{"a":,', 5),
    ("messages", b'{"a":1 2', 7),
    ("messages", b'{"a":1,}', 7),
    ("messages", b'{"a":[1,]', 8),
    ("messages", b'{"a":[1}', 7),
    ("messages", b'{"a":{"b":1]', 11),
    ("messages", b'{"a":nul!', 8),
    ("messages", b'{"a":NaN', 5),
    ("messages", b'{"a":Inf', 5),
    ("messages", b'{"a":-I', 6),
    ("messages", b'{"a":+1', 5),
    ("messages", b'{"a":01', 6),
    ("messages", b'{"a":1.,', 7),
    ("messages", b'{"a":1e,', 7),
    ("messages", b'{"a":"\t', 6),
    ("messages", b'{"a":"\n', 6),
    ("messages", b'{"a":"\\x', 7),
    ("messages", b'{"a":"\\u00g', 10),
    ("messages", b'{"a":"\\u0000', 11),
    ("messages", b'{"a":"\\udc00', 9),
    ("messages", b'{"a":"\\ud800x', 12),
    ("messages", b'{"a":"\\ud800\\n', 13),
    ("messages", b'{"a":"\\ud800\\ud800', 15),
    ("messages", b'{"a":"\xff', 6),
    ("messages", b'{"a":"\xc3"', 7),
    ("messages", b'{"a":"\xed\xa0', 7),
    ("messages", b'{"a":"\xf4\x90', 7),
    ("messages", b'{"a":1,"a"', 9),
    ("messages", b'{"a":1,"\\u0061"', 14),
    ("messages", b'{"role":"nobody"', 15),
    ("messages", b'{"role":1,', 9),
    ("messages", b'{"content":[{"type":"text"}]', 27),
    ("messages", b'{"run":"a b"', 11),
    ("messages", b'{"role":"user","content":"x"}x', 29),
    ("messages", b'{"role":"user"}', 14),
    ("messages", b'{"k":' + b"[" * MAX_DEPTH, 4 + MAX_DEPTH),
    ("events", b'{"type":"nothing"', 16),
    ("events", b'{"type":1,', 9),
    ("events", b'{"run":1,"type":"delta"', 22),
    ("events", b'{"type":"delta","run":1,', 23),
    ("events", b'{"type":"cut","before":true', 26),
    ("events", b'{"type":"mark","name":"no such","data":{}}', 41),
    ("events", b'{"type":"meta","meta":{"scope":"shared"}}', 40),
]


@pytest.mark.parametrize(("stream", "raw", "possible"), IMPOSSIBLE, ids=lambda value: repr(value)[:60])
def test_impossible_bytes_fail_at_once(stream: Stream, raw: bytes, possible: int) -> None:
    one_by_one(stream, raw[:possible])
    prefix = one_by_one(stream, raw[:possible])
    with pytest.raises(InvalidValue):
        prefix.feed(raw[possible:])
    with pytest.raises(InvalidValue):
        fed(stream, raw)


def ends_too_early(raw: bytes) -> bool:
    """Whether a parser of whole documents finds nothing wrong but, at worst, that it ends."""
    try:
        msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    return True


@given(st.sampled_from(VALID), st.integers(0, 200), st.integers(0, 255))
def test_what_passes_is_cut_short_at_worst(valid: tuple[Stream, bytes], at: int, byte: int) -> None:
    stream, raw = valid
    changed = raw[:at] + bytes([byte])
    try:
        fed(stream, changed)
    except InvalidValue:
        return
    assert ends_too_early(changed) or ends_too_early(changed + b"0"), "a number may lack its digit"


@pytest.mark.parametrize("raw", JSON_REFUSED, ids=lambda raw: repr(raw[:60]))
def test_a_prefix_of_no_line_ends_in_a_refusal(raw: bytes) -> None:
    """What passes as a prefix can still become a line: closing it properly must be possible."""
    try:
        prefix = fed("messages", raw)
    except CtxError:
        return
    assert prefix.raw in (b"", b" ", b"\t", b"{", b'{"role":"user","content":"a"')


def test_blanks_may_surround_the_object() -> None:
    fed("messages", b" \t", b'{"role":"user","content":"x"}', b" ", b"\t")


def test_a_key_repeated_after_very_many_is_found_when_the_object_ends() -> None:
    raw = b'{"role":"user","content":"x",' + b"".join(b'"k%d":1,' % n for n in range(5000)) + b'"k4999":1'
    prefix = fed("messages", raw)
    with pytest.raises(InvalidValue):
        prefix.feed(b"}")


@pytest.mark.parametrize("piece", [1000, 4096, MAX_LINE])
def test_a_mebibyte_is_the_limit(piece: int) -> None:
    raw = b'{"role":"user","content":"' + b"x" * (MAX_LINE - 26)
    prefix = fed("messages", *(raw[n : n + piece] for n in range(0, MAX_LINE, piece)))
    assert len(prefix) == MAX_LINE
    with pytest.raises(LineTooLong):
        prefix.feed(b"x")
    with pytest.raises(LineTooLong):
        fed("messages", raw + b"x")
