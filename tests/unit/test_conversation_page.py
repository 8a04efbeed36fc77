"""A conversation as a page: whatever a session holds, it is text there, and nothing is asked of the network (4.1)."""

from collections.abc import Iterable
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mountctl.conversation import Call, Media, Notice, Part, Result, Text, Thought, Turn
from mountctl.conversation_page import page

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PNG = "data:image/png;base64,iVBORw0KGgo="

TAGS = {
    *("html", "head", "meta", "title", "style", "body", "main", "nav", "article", "header", "details", "summary"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "br", "hr", "ul", "ol", "li", "dl", "dt", "dd", "div", "span", "time"),
    *("a", "b", "strong", "em", "s", "code", "pre", "blockquote", "img"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {"href", "src", "alt", "class", "id", "rel", "title", "datetime", "lang", "start"}


class Reader(HTMLParser):
    """What a browser would make of a page: elements with their attributes, and the text of the body."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "hr", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def attributes(self, name: str) -> list[str]:
        return [str(found[name]) for _, found in self.elements if name in found]

    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}


def read(*items: Turn | Notice, title: str = "t", contents: Iterable[tuple[int, str]] = ()) -> Reader:
    reader = Reader("".join(page(title, {"agent": title}, list(contents), items)))
    assert reader.open == []
    return reader


def said(*parts: Part, role: str = "assistant") -> Turn:
    return Turn(7, MOMENT, role, parts)


HOSTILE = [
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"><svg/onload=alert(1)>', "</style></title>"),
    *("[a](javascript:alert(1))", "[a](data:text/html,x)", "![a](http://tracker/x.gif)", "<javascript:alert(1)>"),
    *("</pre></details></article>", "<!--", "]]>", "&lt;b&gt;", "&#x202e;", "\x1b[2J", "\x00", "\u202e", "\ud800"),
    *(
        "```html\n<b>",
        "\n\n|a|\n|:-|\n|<i>|\n",
        '[x](https://e.org/"onclick=x)',
        "[x]: javascript:y\n[x]",
        "# <h1>",
        "\n\n",
    ),
    *("[a](file:///etc/passwd)", "[a](relative/path)", "[a](//e.org)", "<https://e.org>", "`<b>`", "'", "~~<s>~~"),
]
hostile = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=5), max_size=6).map("".join)
texts = st.builds(Text, hostile)
media = st.builds(Media, hostile, hostile | st.just(PNG))
results = st.builds(Result, st.lists(texts | media, max_size=2), st.booleans())
arguments = st.dictionaries(hostile, hostile | st.integers(), max_size=2) | hostile
calls = st.builds(Call, hostile, arguments, st.none() | results)
turns = st.builds(
    Turn,
    st.integers(0, 99),
    st.none() | st.just(MOMENT),
    hostile | st.sampled_from(["user", "assistant", "tool"]),
    st.lists(st.one_of(texts, st.builds(Thought, hostile), media, calls, results), max_size=3),
)
notices = st.builds(Notice, st.integers(0, 99), st.just(MOMENT), hostile, hostile, st.lists(turns, max_size=1))


@given(st.lists(turns | notices, max_size=4), hostile, st.lists(st.tuples(st.integers(0, 9), hostile), max_size=3))
def test_a_page_has_only_our_elements_and_asks_for_nothing(
    items: list[Turn | Notice], title: str, contents: list[tuple[int, str]]
) -> None:
    found = read(*items, title=title, contents=contents)
    assert found.tags() <= TAGS
    allowed = ATTRIBUTES | {"charset", "content", "http-equiv", "name"}
    assert {name for _, attributes in found.elements for name in attributes} <= allowed
    assert all(link.startswith(("#n", "http:", "https:", "mailto:")) for link in found.attributes("href"))
    assert set(found.attributes("src")) <= {PNG}
    assert not set(found.text) & set("\x00\x1b\u202e\ud800")


def test_scripts_network_and_styles_are_forbidden_once_more() -> None:
    (policy,) = (found["content"] for tag, found in read().elements if tag == "meta" and "http-equiv" in found)
    assert policy is not None and policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (Text("a <b> & \x1b"), "a <b> & \\x1b"),
        (Text("one\ntwo"), "one\ntwo"),
        (Text("[a](javascript:x)"), "[a](javascript:x)"),
        (Text("![alt](http://x/y.gif)"), "[image alt http://x/y.gif]"),
        (Text("<" * 30_001), "<" * 30_001),
        (Thought("<hm>"), "Thinking<hm>"),
        (Media("image", "/a/<b>.png"), "[image /a/<b>.png]"),
        (Media("image", "data:image/svg+xml;base64,AAAA"), "[image data:image/svg+xml;base64,AAAA]"),
        (Call("f", {"a": "<b>"}, None), 'f {"a": "<b>"}no result'),
        (Result([Text("")], True), "failedempty"),
    ],
)
def test_what_is_shown_of_a_part(part: Part, text: str) -> None:
    assert text in read(said(part)).text


def test_markdown_is_laid_out_below_the_page_s_own_headings() -> None:
    found = read(said(Text("# one\n\n- **two**\n\n|a|\n|-|\n|b|\n\n```py\nx\n```")))
    assert {"h3", "li", "strong", "table", "pre"} <= found.tags() and [tag for tag, _ in found.elements].count(
        "h1"
    ) == 1


def test_columns_are_aligned_without_styles() -> None:
    assert read(said(Text("|a|b|\n|-|-:|\n|1|2|"))).attributes("class")[-2:] == ["right", "right"]


def test_an_image_whose_bytes_are_in_the_session_is_shown() -> None:
    assert read(said(Media("image", PNG))).attributes("src") == [PNG]


@pytest.mark.parametrize(
    ("output", "folded"),
    [("short", False), ("\n" * 11, False), ("\n" * 12, True), ("x" * 1201, True)],
)
def test_long_outputs_are_folded(output: str, folded: bool) -> None:
    found = read(said(Call("f", {}, Result([Text(output)], False)), role="tool"))
    assert ("details" in found.tags()) is folded
    assert output.strip() in found.text


def test_long_arguments_are_folded_and_their_texts_stand_as_they_are() -> None:
    found = read(said(Call("Write", {"path": "a", "content": "x\n" * 200}, None), role="tool"))
    assert "details" in found.tags() and "x\nx\nx" in found.text


def test_each_entry_can_be_linked_to_and_says_when_it_was() -> None:
    found = read(said(Text("a")), contents=[(7, "first"), (8, "second")])
    assert found.attributes("id") == ["n7"]
    assert found.attributes("href") == ["#n7", "#n8", "#n7"]
    assert found.attributes("datetime") == ["2026-01-02T03:04:05Z"]
