"""``ctx agent log``: every entry of a session, one a line, and those to come (spec 4.1, 1.7, 1.10)."""

import argparse
import contextlib
import errno
import json
import os
import select
import shutil
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from mountctl import places
from mountctl.cli import OK
from mountctl.pager import Pager
from mountctl.session_options import add_session
from mountctl.text import escaped_name, is_terminal, styled

DESCRIPTION = """Shows every entry of a session's log, one a line: on a pipe the bytes of context/log.jsonl; on a
terminal, or with --pretty, its number, time, kind and what it says (as far as that fits on the terminal)."""

_CHUNK = 1 << 20
_LOOK_AGAIN_MS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    text = "go on with what is appended, until interrupted or archived"
    parser.add_argument("-f", "--follow", action="store_true", help=text)
    parser.add_argument("--pretty", action="store_true", help="the readable form on a pipe too")


def run(arguments: argparse.Namespace) -> int:
    directory = places.session(arguments.agent, arguments.session, arguments.space)
    try:
        with open(f"{directory}/context/log.jsonl", "rb", buffering=0) as log:
            chunks = _followed(log.name, log.fileno()) if arguments.follow else _rest(log.fileno())
            if arguments.pretty or is_terminal():
                _print(chunks, contextlib.nullcontext(sys.stdout) if arguments.follow else Pager())
            else:
                _copy(chunks)
    except FileNotFoundError:
        # Also where it is deleted while it is followed.
        raise places.no_session(directory) from None
    return OK


def _copy(chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def _rest(descriptor: int) -> Iterator[bytes]:
    """What there is from here on to the end, in pieces of any size."""
    while chunk := os.read(descriptor, _CHUNK):
        yield chunk


def _followed(path: str, descriptor: int) -> Iterator[bytes]:
    """The same, and whatever is appended, until the session is archived or whoever reads our output has gone.

    ``OSError``: the mount has gone; ``FileNotFoundError``: the session was deleted.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLPRI)
    poll.register(sys.stdout.fileno(), 0)
    while _leads_to(path, descriptor):
        yield from _rest(descriptor)
        # Where the file system does not say that a file grew (spec 1.10 is ours alone), looking again does.
        ready = dict(poll.poll(_LOOK_AGAIN_MS))
        if ready.get(descriptor, 0) & select.POLLERR:
            # What the kernel still has of the file can be read for ever, and is all there will be.
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        if ready.keys() - {descriptor}:
            return
    # What is archived grows no more, and has all of its lines by now; what is deleted cannot be read.
    yield from _rest(descriptor)


def _leads_to(path: str, descriptor: int) -> bool:
    """Whether an open file is still where it was opened: a session that is archived is not (spec 4.4)."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _print(chunks: Iterable[bytes], output: contextlib.AbstractContextManager[Any]) -> None:
    rest = b""
    with output as out:
        for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                out.write(_line(json.loads(line)))
            sys.stdout.flush()


def _line(entry: dict[str, Any]) -> str:
    name, text = _said(entry)
    width = shutil.get_terminal_size().columns if is_terminal() else None
    line = escaped_name(f"{entry['n']:>6}  {_time(entry['time'])}  {name:<10}  {text[:width]}")
    if width is not None and len(line) > width:
        line = line[: width - 1] + "…"
    return f"{styled(line, '1') if entry['kind'] == 'cut' else line}\n"


def _time(milliseconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"


def _said(entry: dict[str, Any]) -> tuple[str, str]:
    """What an entry is called, and what it says on one line."""
    if entry["kind"] == "message":
        message = entry["message"]
        return str(message.get("role")), _text(message.get("content"))
    data = entry["data"]
    if entry["kind"] == "cut":
        return "cut", f"before {data.get('before')}: {data.get('reason')}"
    return entry["name"], json.dumps(data, ensure_ascii=False)


def _text(content: Any) -> str:
    """A message's content on one line; parts that are no text as what they are."""
    if not isinstance(content, list):
        return " ".join(str(content).split())
    return " ".join(_part(part if isinstance(part, dict) else {"type": part}) for part in content)


def _part(part: dict[str, Any]) -> str:
    if "text" in part:
        return _text(part["text"])
    label = f"[{part.get('type')}]"
    return f"{label} {_text(part['content'])}" if isinstance(part.get("content"), str | list) else label
