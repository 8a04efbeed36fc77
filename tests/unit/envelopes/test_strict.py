"""Strict JSON without the module ``json``: what that would read or write, and its words where it would not (spec 5)."""

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.envelopes.strict import dumps, loads
from tests.mounting import PROJECT

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
)
_blanks = st.text(" \t\r\n", max_size=3)


@given(_values, _blanks, _blanks, st.booleans())
def test_a_document_is_read_as_json_reads_it(value: Any, before: str, after: str, ascii: bool) -> None:
    assert loads(f"{before}{json.dumps(value, ensure_ascii=ascii)}{after}".encode()) == value


@given(_values)
def test_a_value_is_written_as_json_writes_it(value: Any) -> None:
    assert dumps(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def test_the_maker_of_objects_gets_their_fields_in_order() -> None:
    assert loads(b'{"b":{"a":1},"b":2}', tuple) == (("b", (("a", 1),)), ("b", 2))


@pytest.mark.parametrize("value", [{1}, [b""], float("nan"), float("inf")])
def test_what_is_no_json_is_not_written(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        dumps(value)


_WRONG = {
    b"": "Expecting value: line 1 column 1 (char 0)",
    b" \n": "Expecting value: line 2 column 1 (char 2)",
    b"{": "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    b'{"a" 1}': "Expecting ':' delimiter: line 1 column 6 (char 5)",
    b'{"a":1,}': "Expecting property name enclosed in double quotes: line 1 column 8 (char 7)",
    b"[1,": "Expecting value: line 1 column 4 (char 3)",
    b"[1 2]": "Expecting ',' delimiter: line 1 column 4 (char 3)",
    b'"abc': "Unterminated string starting at: line 1 column 1 (char 0)",
    b'"\\x"': "Invalid \\escape: line 1 column 2 (char 1)",
    b'"\x01"': "Invalid control character at: line 1 column 2 (char 1)",
    b"[] x": "Extra data: line 1 column 4 (char 3)",
    b"nul": "Expecting value: line 1 column 1 (char 0)",
    b"[NaN]": "NaN is not JSON",
    b"-Infinity": "-Infinity is not JSON",
    b"[1e999]": "a number is out of range",
    b"[" * 100_000: "nested too deeply",
    b"[%b]" % (b"1" * 5000): "Exceeds the limit (4300 digits) for integer string conversion",
    b"\xff": "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
    b'{"\\ud800":1}': "'utf-8' codec can't encode character '\\ud800' in position 0: surrogates not allowed",
}


@pytest.mark.parametrize("raw", _WRONG, ids=lambda raw: repr(raw[:8]))
def test_what_is_no_json_is_refused_with_the_reason(raw: bytes) -> None:
    with pytest.raises(ValueError) as refused:
        loads(raw)
    assert str(refused.value).startswith(_WRONG[raw])


_ALONE = """
import sys
from backend.envelopes.strict import loads
for raw in {wrong!r}:
    for name in [name for name in sys.modules if name.partition(".")[0] == "json"]:
        del sys.modules[name]
    try:
        loads(raw)
    except ValueError as error:
        print(repr(str(error)))
"""


def test_the_reason_is_told_also_where_json_was_not_imported_before() -> None:
    program = _ALONE.format(wrong=list(_WRONG))
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=PROJECT, check=True)
    told = [line[1:-1].encode().decode("unicode_escape") for line in done.stdout.splitlines()]
    assert [reason[: len(wanted)] for reason, wanted in zip(told, _WRONG.values(), strict=True)] == [*_WRONG.values()]
