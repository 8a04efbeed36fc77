"""Parts that do not fit into a line: out into blobs and back, without loss (spec 4.2)."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.strict_json import compact
from backend.transcripts import blobs

LIMIT = 300
TEXT = st.text(max_size=200)
PART = st.fixed_dictionaries({"type": st.sampled_from(["text", "image", "odd"]), "text": TEXT})
RESULT = st.fixed_dictionaries(
    {"type": st.just("tool_result"), "tool_call_id": st.just("t"), "content": st.lists(PART, max_size=3)}
)
MESSAGE = st.fixed_dictionaries({"role": st.just("user"), "content": st.lists(PART | RESULT, max_size=4)})
CALL = st.fixed_dictionaries(
    {"type": st.just("tool_call"), "id": st.just("t"), "arguments": st.dictionaries(TEXT, TEXT)}
)
CUT = st.fixed_dictionaries({"type": st.just("cut"), "before": st.just(1), "summary": st.lists(MESSAGE, max_size=3)})


@pytest.fixture(autouse=True, scope="module")
def _short_lines() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blobs, "MAX_LINE", LIMIT)
        yield


@settings(max_examples=200)
@given(MESSAGE | CALL | CUT)
def test_what_is_taken_out_can_be_put_back(value: dict[str, Any]) -> None:
    raw, taken = blobs.encoded(value)
    kept = {blob.sha256: blob.content for blob in taken}
    assert blobs.restored(raw, kept.__getitem__) == compact(value)
    assert bool(taken) == (len(compact(value)) > LIMIT)


@settings(max_examples=200)
@given(MESSAGE | CALL | CUT)
def test_what_was_put_back_is_taken_out_again_as_before(value: dict[str, Any]) -> None:
    raw, taken = blobs.encoded(value)
    kept = {blob.sha256: blob.content for blob in taken}
    assert blobs.encoded(json.loads(blobs.restored(raw, kept.__getitem__))) == (raw, taken)


def test_only_as_much_is_taken_out_as_must_be() -> None:
    parts = [{"type": "text", "text": "x" * size} for size in (10, 400, 20)]
    _, taken = blobs.encoded({"role": "user", "content": parts})
    assert [json.loads(blob.content) for blob in taken] == [parts[1]]


def test_parts_that_are_too_many_for_a_reference_each_are_taken_out_together() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": str(number)} for number in range(50)]}
    raw, [blob] = blobs.encoded(message)
    assert len(raw) <= LIMIT and json.loads(blob.content) == message["content"]
    assert json.loads(blobs.restored(raw, {blob.sha256: blob.content}.__getitem__)) == message


def test_a_text_that_is_too_big_becomes_a_part() -> None:
    raw, [blob] = blobs.encoded({"role": "user", "content": "x" * 400})
    assert json.loads(blob.content) == {"type": "text", "text": "x" * 400}
    assert json.loads(raw)["content"] == [
        {"type": "blob", "path": f"data/blob/{blob.sha256}", "sha256": blob.sha256, "bytes": len(blob.content)}
    ]
