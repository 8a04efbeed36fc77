"""A conversation as text for a terminal or a pipe (spec 4.1).

On a terminal with colours markdown is laid out by ``rich``, which is imported only then; elsewhere it stays as it was
written. Whatever a session holds is escaped last of all, so that nothing in it can steer the terminal.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from mountctl.conversation import MAX_MARKDOWN, Call, Media, Notice, Part, Result, Text, Thought, Turn
from mountctl.text import counted, escaped, escaped_name, has_colour, styled

_BOLD, _DIM, _RED = "1", "2", "31"
_ROLES = {"user": "1;34", "assistant": "1;32", "tool": "1;33", "system": "1;35"}
_MAX_RESULT_LINES = 20
_MAX_ARGUMENTS = 500
_MAX_WHERE = 200
_MIN_WIDTH, _MAX_WIDTH = 20, 100

Markdown = Callable[[str], str]


def text_of(item: Turn | Notice, markdown: Markdown) -> str:
    """A turn or notice as lines, with a blank line after it."""
    lines = _turn(item, markdown) if isinstance(item, Turn) else _notice(item, markdown)
    return "\n".join(lines) + "\n\n"


def markdown_renderer() -> Markdown:
    """How markdown is shown where stdout leads."""
    if not has_colour():
        return escaped
    from mountctl.rich_markdown import Renderer

    return Renderer(max(_MIN_WIDTH, min(_MAX_WIDTH, shutil.get_terminal_size().columns)))


def _turn(turn: Turn, markdown: Markdown) -> Iterator[str]:
    if turn.role != "tool":
        yield _heading(turn.role, turn.moment, _ROLES.get(turn.role, _BOLD))
    yield from _parts(turn.parts, markdown)


def _notice(notice: Notice, markdown: Markdown) -> Iterator[str]:
    yield _heading(notice.kind, notice.moment, _RED if notice.kind in ("error", "done") else _BOLD)
    yield escaped(notice.text)
    for turn in notice.turns:
        yield from (f"  {line}" for block in _turn(turn, markdown) for line in block.split("\n"))


def _heading(what: str, moment: datetime | None, style: str) -> str:
    time = "" if moment is None else f"  {moment.astimezone():%Y-%m-%d %H:%M:%S}"
    return styled(f"── {escaped_name(what)}", style) + styled(time, _DIM)


def _parts(parts: Sequence[Part], markdown: Markdown) -> Iterator[str]:
    for part in parts:
        match part:
            case Text(text):
                yield markdown(text) if len(text) <= MAX_MARKDOWN else escaped(text)
            case Thought(text):
                yield from (styled(f"  {line}", _DIM) for line in escaped(text).splitlines())
            case Media(kind, where):
                yield styled(f"[{escaped_name(f'{kind} {where[:_MAX_WHERE]}' if where else kind)}]", _DIM)
            case Call(name, arguments, result):
                yield styled("▸ ", _ROLES["tool"]) + _call(name, arguments)
                yield from _result(result) if result is not None else ["  (no result)"]
            case Result():
                yield styled("▸ result of no call", _ROLES["tool"])
                yield from _result(part)


def _call(name: str, arguments: Any) -> str:
    text = json.dumps(arguments, ensure_ascii=False)
    shown = text if len(text) <= _MAX_ARGUMENTS else f"{text[: _MAX_ARGUMENTS - 1]}…"
    return f"{styled(escaped_name(name), _BOLD)} {escaped_name(shown)}"


def _result(result: Result) -> Iterator[str]:
    if result.failed:
        yield styled("  failed", _RED)
    lines = [line for block in _parts(result.parts, escaped) for line in block.splitlines()]
    yield from (f"  {line}" for line in lines[:_MAX_RESULT_LINES])
    if len(lines) > _MAX_RESULT_LINES:
        yield styled(f"  … {counted(len(lines) - _MAX_RESULT_LINES, 'more line')}", _DIM)
