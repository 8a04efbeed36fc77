"""promptDigest (spec 2.6): RFC 8785 over nine keys."""

import hashlib
import math
from typing import Any

import pytest

from backend.digest import HEADER_KEYS, canonical_header, prompt_digest
from backend.errors import SessionError


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ({}, "{}"),
        ({"turn": 3, "promptDigest": "x", "time": 1}, "{}"),
        ({"tools": None, "provider": "p"}, '{"provider":"p","tools":null}'),
        ({"temperature": 1.0, "maxTokens": 1e21}, '{"maxTokens":1e+21,"temperature":1}'),
        ({"temperature": -0.0}, '{"temperature":0}'),
        ({"temperature": 1e-7, "maxTokens": 1e16}, '{"maxTokens":10000000000000000,"temperature":1e-7}'),
        ({"system": "\u2028\x00\x7f/é\U0001f44d"}, '{"system":"\u2028\\u0000\x7f/é\U0001f44d"}'),
        ({"tools": [{"\ue000": 1, "\U0001f600": 2}]}, '{"tools":[{"\U0001f600":2,"\ue000":1}]}'),
        ({"prelude": [True, False, None, []]}, '{"prelude":[true,false,null,[]]}'),
    ],
)
def test_the_canonical_header(header: dict[str, Any], text: str) -> None:
    assert canonical_header(header).decode() == text
    assert prompt_digest(header) == hashlib.sha256(text.encode()).hexdigest()


def test_every_one_of_the_nine_keys_counts() -> None:
    header = dict.fromkeys(HEADER_KEYS, "x")
    changed = {prompt_digest(header | {key: "y"}) for key in HEADER_KEYS}
    dropped = {prompt_digest({other: "x" for other in HEADER_KEYS if other != key}) for key in HEADER_KEYS}
    assert len({prompt_digest(header)} | changed | dropped) == 19


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "system", ["\ud800", {"\udfff": 1}, math.nan, math.inf, 2**53, b"x", {1: 2}, {"a", "b"}, _nested(100_000)]
)
def test_what_has_no_canonical_json_is_refused(system: Any) -> None:
    with pytest.raises(SessionError):
        prompt_digest({"system": system})
