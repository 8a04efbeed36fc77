"""Markdown on a terminal by ``rich``: as people write it to each other, where a line break is one (spec 4.1).

Imported only where there is a terminal with colours: it takes a fifth of a second.
"""

from typing import ClassVar

from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.segment import Segment, Segments
from rich.theme import Theme

from mountctl.text import escaped

_THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.code_block": "cyan",
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.item.number": "bold",
    }
)


class _LeftHeading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Message(Markdown):
    """Headings stay at the left; links show where they lead."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _LeftHeading}

    def __init__(self, text: str) -> None:
        super().__init__(text, code_theme="ansi_dark", hyperlinks=False)
        _keep_line_breaks(self.parsed)


class Renderer:
    """Lays out markdown in lines of at most ``width`` columns."""

    def __init__(self, width: int) -> None:
        self._console = Console(
            width=width, force_terminal=True, highlight=False, color_system="standard", theme=_THEME
        )

    def __call__(self, text: str) -> str:
        """The text with styles. What it holds is escaped last: markdown has ways to write control characters too."""
        segments = self._console.render(_Message(text))
        safe = [Segment(escaped(segment.text), segment.style) for segment in segments if not segment.control]
        with self._console.capture() as captured:
            self._console.print(Segments(safe), end="")
        return "\n".join(line.rstrip(" ") for line in captured.get().strip("\n").split("\n"))


def _keep_line_breaks(tokens: list[Token]) -> None:
    for token in tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"
