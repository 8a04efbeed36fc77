"""``ctx search``: full text over the caller's sessions, the newest first (spec 4.1)."""

import argparse
import json
import re
from collections.abc import Iterator
from typing import Any

from mountctl import ctx_socket, places
from mountctl.cli import OK, USAGE, Failure
from mountctl.progress import Progress
from mountctl.session_options import add_json, add_space, natural
from mountctl.text import age_text, escaped_name, is_terminal, print_table, styled

DESCRIPTION = """Finds entries that hold all words of TEXT, the newest first: what people and models said, what tools
were given and what they answered. "Words in quotes" are a phrase. Case and accents do not count. Archived sessions are
not searched. For the shell, a TEXT of several words needs quotes of its own: ctx search 'one two'."""

_BOLD, _DIM = "1", "2"
_MOST, _STEPS = 1000, 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", metavar="TEXT", help="words to look for")
    parser.add_argument("agent", metavar="AGENT", nargs="?", help="an agent, or model:PROVIDER/MODEL; default: all")
    parser.add_argument("-n", "--limit", metavar="N", type=_limit, default=50, help="at most so many entries (50)")
    add_space(parser)
    add_json(parser)


def _limit(text: str) -> int:
    if not 1 <= (number := natural(text)) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 1 to {_MOST}")
    return number


def run(arguments: argparse.Namespace) -> int:
    hits = search(arguments.text, arguments.agent, arguments.space, arguments.limit)
    if arguments.json:
        print(json.dumps({"hits": [as_json(hit) for hit in hits]}))
    elif is_terminal():
        words = _words(arguments.text)
        print("\n".join(_paragraph(hit, words) for hit in hits) or "nothing found")
    else:
        print_table((), map(_row, hits))
    return OK


def search(text: str, agent: str | None, space: str | None, limit: int) -> Iterator[dict[str, Any]]:
    """The ``hit`` frames of docs/ctx-socket.md (``Failure``: refused, or there is no socket)."""
    if agent is not None:
        places.owner(agent, space)
    request = {"op": "search", "text": text, "limit": limit, "progress": True, **ctx_socket.place(space)}
    with ctx_socket.connection() as daemon:
        try:
            yield from _hits(daemon.frames(request if agent is None else request | {"agent": agent}))
        except ctx_socket.Refused as refusal:
            if refusal.code == "EINVAL":
                raise Failure(str(refusal), USAGE) from None
            raise


def _hits(frames: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The hits, after a bar for how far the index is that they come from."""
    with Progress(_STEPS) as progress:
        at = progress.of_file()
        for frame in frames:
            if frame["type"] == "hit":
                yield frame
            else:
                at(_STEPS * frame["entries"] // max(1, frame["of"]))


def as_json(hit: dict[str, Any]) -> dict[str, Any]:
    """A hit in the shape of docs/json.md; the time in seconds."""
    keys = ("agent", "session", "n", "time", "kind", "role", "snippet")
    return {key: hit[key] for key in keys} | {"time": hit["time"] / 1000}


def _row(hit: dict[str, Any]) -> tuple[str, ...]:
    return hit["agent"], hit["session"], str(hit["n"]), _age(hit), _who(hit), hit["snippet"]


def _age(hit: dict[str, Any]) -> str:
    return age_text(hit["time"] // 1000)


def _who(hit: dict[str, Any]) -> str:
    return str(hit["role"] or hit["kind"])


def _paragraph(hit: dict[str, Any], words: re.Pattern[str]) -> str:
    where = styled(escaped_name(f"{hit['agent']}/{hit['session']}"), _BOLD)
    aside = styled(escaped_name(f"{hit['n']}  {_who(hit)}  {_age(hit)}"), _DIM)
    snippet = words.sub(lambda match: styled(match[0], _BOLD), escaped_name(hit["snippet"]))
    return f"{where}  {aside}\n    {snippet}"


def _words(text: str) -> re.Pattern[str]:
    """What is shown in bold of a snippet: the words as they were typed, in any case."""
    words = sorted(map(re.escape, re.findall(r"\w+", text)), key=len, reverse=True)
    return re.compile("|".join(words) or r"(?!)", re.IGNORECASE)
