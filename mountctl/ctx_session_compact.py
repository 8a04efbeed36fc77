"""``ctx agent session compact``: from here on a summary stands for what was said (spec 4.2, 2.4)."""

import argparse
import json
import os
import sys
from typing import Any

from backend.errors import CtxError
from backend.lines import parse_line
from backend.strict_json import compact
from mountctl import places
from mountctl.cli import OK, Failure
from mountctl.session_options import add_session, natural
from mountctl.sessions import attribute, require_session

DESCRIPTION = """Appends a cut: what the model is sent (context/messages.jsonl) is then the summary and what follows.
Nothing is removed from the log. The summary is a JSON array of messages, or message lines as messages.jsonl has them;
a text that does not begin with [ or { becomes one message of the user."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("--summary", metavar="FILE", required=True, help="a file, - for stdin")
    parser.add_argument("--before", type=natural, metavar="N", help="summed up are the first N entries; default: all")
    parser.add_argument("--reason", metavar="R", default="manual", help="why; default: manual")


def run(arguments: argparse.Namespace) -> int:
    directory = places.session(arguments.agent, arguments.session, arguments.space)
    require_session(directory)
    summary = _messages(_read(arguments.summary))
    length = int(attribute(directory, "n") or 0)
    before = length if arguments.before is None else arguments.before
    if before > length:
        raise Failure(f"the session has {length} entries, --before {before} is beyond them")
    _append(directory, {"before": before, "reason": arguments.reason, "summary": summary})
    return OK


def _read(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode()
        with open(path, "rb") as file:
            return file.read().decode()
    except UnicodeDecodeError:
        raise Failure(f"{path}: the summary is UTF-8 text or JSON") from None


def _messages(text: str) -> list[Any]:
    start = text.lstrip()[:1]
    if not start:  # most likely of a program that failed
        raise Failure("the summary is empty; [] is one of no messages")
    if start not in ("[", "{"):
        return [{"role": "user", "content": text.strip()}]
    try:
        found = json.loads(text) if start == "[" else [json.loads(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError) as error:
        raise Failure(f"the summary is not JSON: {error}") from None
    assert isinstance(found, list)
    return found


def _append(directory: str, cut: dict[str, Any]) -> None:
    """As the session's command; one that is too big for that as a line of its log."""
    try:
        line = compact({"type": "cut", **cut})
        parse_line("events", line)
    except CtxError as error:
        raise Failure(f"the summary cannot be recorded: {error}") from None
    if len(line) <= os.XATTR_SIZE_MAX:
        os.setxattr(directory, "user.ctx.compact", line)
        return
    with open(f"{directory}/events.jsonl", "ab") as events:
        events.write(line + b"\n")
