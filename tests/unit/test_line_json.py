"""What JSON a line may be (spec 1.5)."""

import pytest

from backend.errors import InvalidValue, LineTooLong
from backend.lines import (
    parse_line,
)
from backend.strict_json import MAX_LINE

DEEP = 127  # beside the object itself

JSON_ACCEPTED: list[bytes] = [
    b' {"role" : "user" ,\t"content" : "a" } ',
    '{"role":"user","content":"日本 \U0001f600 \x7f \u2028"}'.encode(),
    b'{"role":"user","content":"\\ud83d\\ude00 \\\\u0000 \\u0001 \\/"}',
    b'{"role":"user","content":"","k":{"a":1,"a":2}}',
    b'{"role":"user","content":"\\"k\\":1,\\"k\\":2","k":"a:b"}',
    b'{"role":"user","content":"","n":[-0,1e5,1E-7,1.5,12345678901234567890123456789012345]}',
    b'{"role":"user","content":"","k":' + b"[" * DEEP + b"]" * DEEP + b"}",
    b'{"role":"user","content":"' + b"[" * 1000 + b'"}',
    b'{"role":"user","content":"","k":[' + b"[]," * 1000 + b"[]]}",
    b'{"\\u0072ole":"user","content":""}',
]

JSON_REFUSED: list[bytes] = [
    b"",
    b" ",
    b"\t",
    b"garbage",
    b"{",
    b"{}x",
    b"{} {}",
    b"[]",
    b'"x"',
    b"null",
    b"{'role':'user'}",
    b'{"role":"user","content":"a",}',
    b'{"role":"user","content":"a"',
    b'{"role":"user","content":"a"}//',
    b'\xef\xbb\xbf{"role":"user","content":"a"}',
    b'{"role":"user","content":"\xff"}',
    b'{"role":"user","content":"\xed\xa0\x80"}',
    b'{"role":"user","content":"\xc0\x80"}',
    b'{"role":"user","content":"\xe2\x82"}',
    b'{"role":"user",\n"content":"a"}',
    b'{"role":"user","content":"a"}\r',
    b'{"role":"user",\r"content":"a"}',
    b'{"role":"user","content":"a\0"}',
    b'{"role":"user","content":"a"}\0',
    b'{"role":"user","content":"a\tb"}',
    b'{"role":"user","content":"\\u0000"}',
    b'{"role":"user","content":"\\\\\\u0000"}',
    b'{"role":"user","content":"","k":[{"\\u0000":1}]}',
    b'{"role":"user","content":"\\ud800"}',
    b'{"role":"user","content":"\\udc00\\ud800"}',
    b'{"role":"user","content":"\\ud83d\\u0041"}',
    b'{"role":"user","content":"","k":{"\\ud800":1}}',
    b'{"role":"user","content":"","k":NaN}',
    b'{"role":"user","content":"","k":Infinity}',
    b'{"role":"user","content":"","k":-Infinity}',
    b'{"role":"user","content":"","k":1e999}',
    b'{"role":"user","content":"","k":01}',
    b'{"role":"user","content":"","k":"\\x"}',
    b'{"role":"user","role":"user","content":"a"}',
    b'{"role":"user","content":"a","content":"b"}',
    b'{"role" : "user","content" : "a","k" : 1,"k" : 2}',
    b'{"role":"user","content":"a","k":1,"\\u006b":2}',
    b'{"role":"user","content":"a","\\ud83d\\ude00":1,"\xf0\x9f\x98\x80":2}',
    b'{"role":"user","content":"","k":' + b"[" * (DEEP + 1) + b"]" * (DEEP + 1) + b"}",
    b'{"role":"user","content":"","k":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    b'{"role":"user","content":"","k":' + b"[" * 500_000,
]


@pytest.mark.parametrize("raw", JSON_ACCEPTED, ids=lambda raw: repr(raw[:60]))
def test_any_json_object_in_one_line_passes(raw: bytes) -> None:
    assert parse_line("messages", raw).raw == raw


@pytest.mark.parametrize("raw", JSON_REFUSED, ids=lambda raw: repr(raw[:60]))
def test_what_is_no_json_object_in_one_line_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidValue):
        parse_line("messages", raw)


def test_a_line_may_have_one_mebibyte() -> None:
    raw = b'{"role":"user","content":"' + b"x" * (MAX_LINE - 28) + b'"}'
    assert len(raw) == MAX_LINE
    assert parse_line("messages", raw).raw == raw
    with pytest.raises(LineTooLong):
        parse_line("messages", raw + b" ")
