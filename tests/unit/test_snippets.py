"""Snippets of hits: short, of the text, of whole characters (spec 1.9)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.search.query import expression
from backend.search.snippets import MAX_LENGTH, cut, snippets


def test_a_snippet_of_a_long_text_takes_no_square_of_its_matches() -> None:
    long = "word " * 200_000
    shown = snippets(expression("word"), [long])[0]
    assert shown is not None
    assert shown.count("word") == 24


@pytest.mark.parametrize(
    ("text", "query", "shown"),
    [
        ("a" + " x" * 5000 + " needle in hay" + " y" * 5000, "needle hay", "needle in hay"),
        ("first" + " x" * 5000 + " last", "first last", "first x"),
        ("last" + " x" * 5000 + " first", "first last", "x first"),
        ("x " * 5000 + "far" + " ." * 5000 + " off", '"far off"', "x x"),
    ],
)
def test_a_snippet_of_a_long_text_shows_what_matched(text: str, query: str, shown: str) -> None:
    [snippet] = snippets(expression(query), [text])
    assert snippet is not None
    assert shown in snippet
    assert len(snippet) <= MAX_LENGTH


@given(
    text=st.lists(st.sampled_from(["a ", "é", "e\u0301", "👨\u200d👩\u200d👧", "字", " needle "])),
    times=st.integers(1, 400),
)
@settings(max_examples=50)
def test_a_snippet_is_of_the_text_and_of_whole_characters(text: list[str], times: int) -> None:
    whole = "".join(text) * times + " needle"
    [snippet] = snippets(expression("needle"), [whole])
    assert snippet is not None
    kept = snippet.strip("…")
    assert kept.strip() in " ".join(whole.split())
    assert not kept.startswith(("\u0301", "\u200d"))


CLUSTERS = ["a", "é", "e\u0301", "👍🏽", "👨\u200d👩\u200d👧", "🇩🇪", "☺\ufe0f", "字"]


@given(parts=st.lists(st.sampled_from(CLUSTERS), max_size=12), length=st.integers(0, 60))
def test_a_cut_never_goes_through_a_character(parts: list[str], length: int) -> None:
    text = "".join(parts)
    kept = cut(text, length)
    assert len(kept) <= length
    assert text.startswith(kept)
    kept.encode()
    edges, at = {0}, 0
    for part in parts:
        at += len(part)
        edges.add(at)
    assert len(kept) in edges or "🇩🇪🇩🇪" in text
