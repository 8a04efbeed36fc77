"""A conversation on a terminal and on a pipe: readable, and nothing in it steers the terminal (spec 4.1)."""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given

from mountctl import text as text_module
from mountctl.conversation import Call, Media, Notice, Part, Result, Text, Thought, Turn
from mountctl.conversation_text import text_of
from mountctl.rich_markdown import Renderer
from mountctl.text import escaped
from tests.unit.test_conversation_page import hostile

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def lines(*parts: Part, role: str = "assistant") -> list[str]:
    return text_of(Turn(0, MOMENT, role, parts), escaped).splitlines()


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Text("# a\n**b** \x1b[2J"), ["# a", "**b** \\x1b[2J"]),
        (Thought("a\nb"), ["  a", "  b"]),
        (Media("image", "/x\n"), ["[image /x\\x0a]"]),
        (Media("odd", ""), ["[odd]"]),
        (Call("Bash", {"command": "x\x1b"}, None), ['▸ Bash {"command": "x\\u001b"}', "  (no result)"]),
        (
            Call("Bash", {}, Result([Text("a\nb"), Media("image", "/x")], True)),
            ["▸ Bash {}", "  failed", "  a", "  b", "  [image /x]"],
        ),
        (Call("Bash", {}, Result([Text("a\n" * 22)], False)), ["▸ Bash {}", *["  a"] * 20, "  … 2 more lines"]),
        (Result([Text("\x07")], False), ["▸ result of no call", "  \\x07"]),
    ],
)
def test_the_lines_of_a_part(part: Part, expected: list[str]) -> None:
    assert lines(part) == ["── assistant  2026-01-02 03:04:05", *expected, ""]


def test_calls_have_no_heading_of_their_own() -> None:
    assert lines(Call("f", {}, None), role="tool") == ["▸ f {}", "  (no result)", ""]


def test_a_notice_says_what_happened_and_what_a_cut_left() -> None:
    notice = Notice(3, MOMENT, "cut", "too\x1blong", [Turn(3, None, "user", [Text("all\nof it")])])
    assert text_of(notice, escaped).splitlines() == [
        "── cut  2026-01-02 03:04:05",
        "too\\x1blong",
        "  ── user",
        "  all",
        "  of it",
        "",
    ]


def test_long_arguments_are_cut() -> None:
    (call, _, _) = lines(Call("f", {"a": "x" * 1000}, None), role="tool")
    assert len(call) < 520 and call.endswith("…")


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("# Title", ["Title"]),
        ("one\ntwo", ["one", "two"]),
        ("- a\n- b", [" • a", " • b"]),
        ("**bold** `code`", ["bold code"]),
        ("[text](https://e.org/x)", ["text (https://e.org/x)"]),
        ("x " * 30, ["x x x x x x x x x x x x x x x x x x x x", "x x x x x x x x x x"]),
        ("日本語", ["日本語"]),
        ("&#x202e;&#13;a", ["\\u202ea"]),
    ],
)
def test_markdown_with_colours_is_laid_out(markdown: str, shown: list[str]) -> None:
    assert [line.rstrip() for line in _STYLE.sub("", Renderer(40)(markdown)).split("\n")] == shown


@given(hostile)
def test_with_colours_there_is_nothing_but_styles(markdown: str) -> None:
    shown = _STYLE.sub("", Renderer(40)(markdown))
    assert escaped(shown) == shown


def test_without_colours_there_is_no_escape_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "is_terminal", lambda: False)
    assert "\x1b" not in "\n".join(lines(Text("**a**"), Call("f", {}, Result([], True)), Media("x", "")))
