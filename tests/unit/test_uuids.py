"""UUIDs as text (spec 1.2)."""

import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.uuids import is_uuid

GOOD = "0123abcd-4567-89ef-0000-fedcba987654"
_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@given(st.uuids())
def test_every_canonical_uuid_is_one(made: uuid.UUID) -> None:
    assert is_uuid(str(made))


@given(st.integers(0, len(GOOD) - 1), st.characters())
def test_each_character_is_judged(at: int, character: str) -> None:
    text = GOOD[:at] + character + GOOD[at + 1 :]
    assert is_uuid(text) is (_FORM.fullmatch(text) is not None)


@pytest.mark.parametrize("text", ["", GOOD[:-1], GOOD + "0", GOOD + "\n", GOOD.upper(), f"{{{GOOD}}}", "٠" * 36])
def test_nothing_else_is_one(text: str) -> None:
    assert not is_uuid(text)
