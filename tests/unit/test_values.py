"""When what was written of a value is judged (spec 1.4, Values)."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.files.values import ends_json

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


@given(DOCUMENTS, st.data())
def test_pretty_json_is_awaited_line_by_line(document: object, data: st.DataObject) -> None:
    pretty = msgspec.json.format(msgspec.json.encode({"document": document}), indent=data.draw(st.integers(0, 4)))
    lines = pretty.splitlines(keepends=True)
    for count in range(len(lines)):
        assert not ends_json(b"".join(lines[:count]))
    assert ends_json(pretty + b"\n")
    assert not ends_json(pretty)


@given(DOCUMENTS, st.binary(min_size=1))
def test_what_follows_a_document_is_judged_at_once(document: object, more: bytes) -> None:
    assert ends_json(msgspec.json.encode(document) + b"," + more + b"\n")
