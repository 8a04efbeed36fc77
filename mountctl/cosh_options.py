"""What ``ctx cosh`` commands share: their options, and asking cosh-core (spec 5.1)."""

import argparse
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import trio

from ctxfs.cosh.client import TRANSPORT, ControlError, SessionControlClient, Summary
from mountctl.cli import ERROR, OK, UNAVAILABLE, Failure
from mountctl.session_options import add_json, named
from mountctl.text import escaped

T = TypeVar("T")

_OURS = (sys.executable, "-P", "-m", "mountctl.ctx", "session-control")


def add_core(parser: argparse.ArgumentParser) -> None:
    """``--core``, ``--workspace`` and ``--json``."""
    parser.add_argument("--core", metavar="PATH", help="the cosh-core to ask; default: ctx session-control")
    text = "whose sessions; default: the current directory"
    parser.add_argument("-w", "--workspace", metavar="DIR", type=named, help=text)
    add_json(parser)


def ask(arguments: argparse.Namespace, question: Callable[[SessionControlClient], Awaitable[T]]) -> T:
    """What core answers (``Failure``: what it refuses, with its code and what to do)."""

    async def main() -> T:
        argv = _OURS if arguments.core is None else (arguments.core, "--session-control")
        return await question(SessionControlClient(argv))

    try:
        return trio.run(main)
    except ControlError as error:
        exit_code = UNAVAILABLE if error.code == TRANSPORT else ERROR
        raise Failure(f"{error} ({error.code})" + (f": {error.hint}" if error.hint else ""), exit_code) from None


def workspace(arguments: argparse.Namespace) -> str:
    """The workspace that was named."""
    return os.path.realpath(arguments.workspace or os.getcwd())


def as_json(value: Any) -> Any:
    """An answer of the client as ``--json`` prints it."""
    return msgspec.to_builtins(value)


def add_session(parser: argparse.ArgumentParser) -> None:
    """The session that is asked about, and whom to ask."""
    parser.add_argument("session", metavar="UUID", help="the session's id, as `ctx cosh list` shows it")
    add_core(parser)


def show(
    arguments: argparse.Namespace, question: Callable[[SessionControlClient, str, str], Awaitable[Summary]]
) -> int:
    """Prints what core answers about a session: a field a line, or as JSON."""
    found = as_json(ask(arguments, lambda client: question(client, workspace(arguments), arguments.session)))
    if arguments.json:
        print(json.dumps({"session": found}))
        return OK
    for name, value in found.items():
        print(f"{name}: {'-' if value is None else escaped(str(value))}")
    return OK
