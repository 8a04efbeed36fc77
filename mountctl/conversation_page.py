"""A conversation as one HTML page (spec 4.1): readable anywhere, without network, scripts or other files.

Nothing that a session holds is markup here: texts are markdown with HTML off, everything else is escaped, links lead to
the web or to mail only, and images are shown only where their bytes are in the session. A content security policy
says the same once more. Pure: turns in, pieces of the page out.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from mountctl.conversation import MAX_MARKDOWN, Call, Media, Notice, Part, Result, Text, Thought, Turn
from mountctl.text import bytes_text, counted, escaped

_OPEN_LINES, _OPEN_CHARACTERS = 12, 1200
_LINE_PREVIEW = 100
_ARGUMENTS_PREVIEW = 160
_WEB = ("http", "https", "mailto")
_INLINE_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")
_ROLES = frozenset(("user", "assistant", "system", "tool"))


def page(
    title: str, facts: Mapping[str, str], contents: Sequence[tuple[int, str]], turns: Iterable[Turn | Notice]
) -> Iterator[str]:
    """The page, piece by piece; ``contents`` are numbers of entries and what they begin with."""
    style = files("mountctl").joinpath("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{_safe(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<h1>{_safe(title)}</h1>\n"
    )
    yield '<dl class="facts">' + "".join(_fact(name, value) for name, value in facts.items()) + "</dl>\n"
    if len(contents) > 1:
        items = "".join(f'<li><a href="#n{n}">{_safe(text)}</a></li>' for n, text in contents)
        yield f"<nav><details><summary>Contents</summary><ol>{items}</ol></details></nav>\n"
    yield "<main>\n"
    yield from map(_article, turns)
    yield "</main>\n</body>\n</html>\n"


def _fact(name: str, value: str) -> str:
    return f"<div><dt>{_safe(name)}</dt><dd>{_safe(value)}</dd></div>"


def _article(item: Turn | Notice) -> str:
    if isinstance(item, Notice):
        bad = " bad" if item.kind in ("error", "done") else ""
        summary = "".join(
            f"<details><summary>{_safe(turn.role)}</summary>{_parts(turn.parts)}</details>" for turn in item.turns
        )
        return _framed(item.n, f"notice{bad}", item.kind, item.moment, f"<div>{_safe(item.text)}</div>{summary}")
    kind = item.role if item.role in _ROLES else "other"
    return _framed(item.n, kind, item.role, item.moment, _parts(item.parts))


def _framed(n: int, kind: str, name: str, moment: datetime | None, content: str) -> str:
    time = f"{moment:%Y-%m-%d %H:%M:%S}" if moment else f"entry {n}"
    stamp = f'<time datetime="{moment:%Y-%m-%dT%H:%M:%SZ}">{time}</time>' if moment else time
    header = f'<header><h2>{_safe(name)}</h2><a href="#n{n}" title="entry {n}, UTC">{stamp}</a></header>'
    return f'<article id="n{n}" class="{kind}">{header}{content}</article>\n'


def _parts(parts: Sequence[Part]) -> str:
    return "".join(map(_part, parts))


def _part(part: Part) -> str:
    match part:
        case Text(text):
            return _markdown(text)
        case Thought(text):
            return f'<details class="thought"><summary>Thinking</summary>{_plain(text)}</details>'
        case Media(kind, where):
            return _media(kind, where)
        case Call(name, arguments, result):
            answer = '<div class="none">no result</div>' if result is None else _result(result)
            return f"{_call(name, arguments)}{answer}"
        case Result():
            return f'<div class="none">the result of no call</div>{_result(part)}'


def _call(name: str, arguments: Any) -> str:
    compact = json.dumps(arguments, ensure_ascii=False)
    head = f"<b>{_safe(name)}</b> <code>{_safe(_cut(compact, _ARGUMENTS_PREVIEW))}</code>"
    if len(compact) <= _ARGUMENTS_PREVIEW:
        return f'<div class="call">{head}</div>'
    named = arguments.items() if isinstance(arguments, dict) else [("value", arguments)]
    full = "".join(f"<dt>{_safe(key)}</dt><dd>{_argument(value)}</dd>" for key, value in named)
    return f'<details class="call"><summary>{head}</summary><dl>{full}</dl></details>'


def _argument(value: Any) -> str:
    return _plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2))


def _result(result: Result) -> str:
    failed = '<div class="failed">failed</div>' if result.failed else ""
    return failed + "".join(_folded(part.text) if isinstance(part, Text) else _part(part) for part in result.parts)


def _folded(text: str) -> str:
    """An output: as it is if it is short, else behind its first line."""
    lines = text.count("\n") + 1
    if lines <= _OPEN_LINES and len(text) <= _OPEN_CHARACTERS:
        return _plain(text) if text else '<div class="none">empty</div>'
    first = _cut(text.lstrip().split("\n", 1)[0], _LINE_PREVIEW)
    size = f"{counted(lines, 'line')}, {bytes_text(len(text.encode('utf-8', 'surrogatepass')))}"
    return f"<details><summary><code>{_safe(first)}</code> {size}</summary>{_plain(text)}</details>"


def _media(kind: str, where: str) -> str:
    if _INLINE_IMAGE.fullmatch(where):
        return f'<div class="media"><img src="{where}" alt="{_safe(kind)}"></div>'
    return f'<div class="media">[{_safe(kind)} {_link(where)}]</div>'


def _link(where: str) -> str:
    shown = _safe(_cut(where, 200))
    return f'<a href="{_safe(where)}" rel="noopener noreferrer">{shown}</a>' if _is_web(where) else shown


def _plain(text: str) -> str:
    return f'<pre class="wrap">{_safe(text)}</pre>'


def _markdown(text: str) -> str:
    if len(text) > MAX_MARKDOWN:
        return _plain(text)
    return f'<div class="md">{escaped(_markdown_parser().render(text))}</div>'


def _safe(text: str) -> str:
    return escape(escaped(text))


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


@cache
def _markdown_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "xhtmlOut": False}, renderer_cls=_Renderer)
    parser.validateLink = _is_web  # type: ignore[method-assign]
    return parser.enable(["table", "strikethrough"])


def _is_web(url: str) -> bool:
    """Whether a link leads to the web or to mail, and nowhere else."""
    try:
        return urlsplit(url).scheme in _WEB
    except ValueError:
        return False


class _Renderer(RendererHTML):
    """What is ours of a text's markup."""

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A link to the image: a page that is looked at asks nobody for anything."""
        return (
            f'<span class="media">[image {_safe(tokens[idx].content)} {_link(str(tokens[idx].attrGet("src")))}]</span>'
        )

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        tokens[idx].attrSet("rel", "noopener noreferrer")
        return self.renderToken(tokens, idx, options, env)

    def heading_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Headings of a text stand below those of the page."""
        tokens[idx].tag = f"h{min(6, int(tokens[idx].tag[1:]) + 2)}"
        return self.renderToken(tokens, idx, options, env)

    heading_close = heading_open

    def td_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A column's alignment as a class: the policy forbids styles in elements."""
        style = str(tokens[idx].attrs.pop("style", ""))
        if style:
            tokens[idx].attrSet("class", style.removeprefix("text-align:"))
        return self.renderToken(tokens, idx, options, env)

    th_open = td_open
