"""Documents of stored sessions: large ones are judged as small ones are (spec 5)."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.envelopes import sessions
from backend.envelopes.documents import SMALL, parse
from backend.envelopes.sessions import Session
from tests.cosh_store import CoshStore, message, session_id
from tests.unit.envelopes.controlled import opened, refusal

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
_blocks = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": _texts}),
    st.fixed_dictionaries(
        {"type": st.just("tool_result"), "tool_use_id": _texts, "content": _texts}, optional={"is_error": st.booleans()}
    ),
)
_calls = st.fixed_dictionaries(
    {"id": _texts, "type": _texts, "function": st.fixed_dictionaries({"name": _texts, "arguments": _texts})}
)
_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": st.one_of(_texts, st.lists(_blocks, max_size=3))},
    optional={"name": st.none() | _texts, "tool_call_id": _texts, "tool_calls": st.none() | st.lists(_calls)},
)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=2),
)
_MESSAGE = {"role": "user", "content": [{"type": "text", "text": "a"}], "tool_calls": []}
_wrong = st.one_of(
    _values,
    st.tuples(st.sampled_from([*_MESSAGE, "name", "more"]), _values).map(
        lambda field: dict([*_MESSAGE.items(), field])
    ),
    st.tuples(st.sampled_from(["type", "text", "is_error"]), _values).map(
        lambda field: {**_MESSAGE, "content": [dict([("type", "text"), ("text", "a"), field])]}
    ),
    st.tuples(st.sampled_from(["id", "type", "function"]), _values).map(
        lambda field: {**_MESSAGE, "tool_calls": [dict([("id", "1"), ("type", "t"), field])]}
    ),
)


def judgement(raw: bytes) -> Any:
    """How many messages and the first prompt, or that it is no list of messages."""
    try:
        return sessions.judged(parse(raw))
    except ValueError:
        return "corrupt"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(_messages, _messages, _wrong), max_size=6), st.booleans())
def test_large_documents_are_judged_as_small_ones_are(messages: list[Any], ascii: bool) -> None:
    raw = json.dumps(messages, ensure_ascii=ascii).encode()
    expected = judgement(raw)
    assert judgement(raw[:-1] + b" " * SMALL + b"]") == expected
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("backend.envelopes.documents.SMALL", 64)
        assert judgement(raw) == expected


@pytest.mark.parametrize("deep", [1, 5, 7, 40])
@settings(max_examples=40, deadline=None)
@given(items=st.lists(_values, max_size=9), at=st.integers(0, 9))
def test_items_of_a_large_array_come_as_they_are(deep: int, items: list[Any], at: int) -> None:
    big: Any = {"text": 'ab\\"]},{' * 500}
    for _ in range(deep):
        big = [big, {"next": big}] if deep < 9 else [0, big, ""]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("backend.envelopes.documents.SMALL", 64)
        value = [*items[:at], big, *items[at:]]
        document: Any = parse(json.dumps(value, indent=1).encode())
        found = [item.value() if hasattr(item, "value") else item for item in document.items()]
    assert found == value


@pytest.mark.parametrize("raw", [b"[%b]", b"[%b5]", b"[5%b]", b"[%b5%b,%b[]%b]"])
def test_blanks_between_items_are_none(raw: bytes) -> None:
    raw = raw.replace(b"%b", b" \n" * SMALL)
    document: Any = parse(raw)
    assert [getattr(item, "value", lambda item=item: item)() for item in document.items()] == json.loads(raw)


_FILL = "x" * SMALL
_PLACES = {
    "content": message("@"),
    "text": message([{"type": "text", "text": "@"}]),
    "result": message([{"type": "tool_result", "tool_use_id": "1", "content": "@"}]),
    "arguments": message("", tool_calls=[{"id": "1", "type": "t", "function": {"name": "f", "arguments": "@"}}]),
}


@pytest.mark.parametrize(
    "text", ["\n", "\x1f", "\\x", "\\u12x4", "\\ud800", "\\udc00", "\\udc00\\ud800", "\\ud800\\u0041"]
)
@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("fill", ["", _FILL], ids=["small", "large"])
def test_a_string_that_is_none_is_corrupt_wherever_it_is(store: CoshStore, text: str, place: str, fill: str) -> None:
    raw = json.dumps(store.envelope(1, messages=[_PLACES[place]])).replace('"@"', f'"{fill}{text}{fill}"')
    store.put(1, raw.encode())
    with opened(store) as held:
        assert refusal(held.load, session_id(1)) == "corrupt"
    fine = raw.replace(f"{fill}{text}{fill}", f"{fill}\\ud83d\\uDE00\\n\\u12aF\\/{fill}")
    store.put(1, fine.encode())
    with opened(store) as held:
        [found] = held.load(session_id(1)).history()
    assert "😀\n\u12af/" in json.dumps(found, ensure_ascii=False).replace("\\n", "\n")


def test_a_large_message_that_holds_no_json_where_nobody_looked_is_corrupt_when_it_is_read(store: CoshStore) -> None:
    raw = json.dumps(store.envelope(1, messages=[message(_FILL, more="@")])).replace('"@"', "1e999")
    store.put(1, raw.encode())
    with opened(store) as held:
        assert refusal(list, held.load(session_id(1)).history()) == "corrupt"


@pytest.mark.parametrize(
    "raw",
    [
        b"[",
        b'{"a":',
        b'{"schema_version":1,"messages":[',
        b" ",
        b"\0",
        b'"',
        b"\\",
        b"1",
        b"-",
        b"{",
        b"[,",
        b'"a",',
        b"\xef\xbb\xbf",
    ],
)
def test_a_large_document_of_nothing_but_one_thing_is_corrupt(store: CoshStore, raw: bytes) -> None:
    store.put(1, raw * (1 + SMALL // len(raw)))
    with opened(store) as held:
        assert refusal(held.load, session_id(1)) == "corrupt"


def test_a_large_compaction_goes_on(store: CoshStore) -> None:
    store.put(1, compaction={"summary": _FILL}, compaction_revision=2)
    with opened(store) as held:
        held.persist(held.load(session_id(1)))
        assert json.loads((store.scope / f"{session_id(1)}.json").read_bytes())["compaction"] == {"summary": _FILL}


def test_a_session_is_what_it_says(store: CoshStore) -> None:
    with opened(store) as held:
        made = held.new("m", [message("a")])
    assert isinstance(made, Session)
    assert made.summary()["health"] == "ready"
    assert refusal(held.new, "m", [{"role": "user"}]) == "corrupt"
