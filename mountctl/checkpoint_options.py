"""What ``ctx checkpoint`` commands share: their options, and asking the daemon (spec 6.2)."""

import argparse
import os
import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from ctxfs.checkpoints.client import CheckpointClient
from mountctl import session_options
from mountctl.cli import Failure

ANSWER_TIMEOUT_S = 3600.0

_ID = re.compile(r"ws-[0-9a-f]{6}(-[0-9]+)?")

T = TypeVar("T")


def add_daemon(parser: argparse.ArgumentParser) -> None:
    """``--socket``, ``--timeout`` and ``--json``."""
    parser.add_argument("--socket", metavar="P", help="default: $WS_CKPT_SOCKET, or /run/ws-ckpt/ws-ckpt.sock")
    parser.add_argument(
        "--timeout", metavar="S", type=_seconds, default=ANSWER_TIMEOUT_S, help="seconds to wait for the answer (3600)"
    )
    session_options.add_json(parser)


def add_workspace(parser: argparse.ArgumentParser, default: str = "the current directory") -> None:
    """``--workspace``."""
    text = f"a directory, or a workspace's id; default: {default}"
    parser.add_argument("-w", "--workspace", metavar="W", type=session_options.named, help=text)


def add_snapshot(parser: argparse.ArgumentParser) -> None:
    """``--snapshot``."""
    parser.add_argument("-s", "--snapshot", metavar="ID", required=True, help="its id, or what only its id begins with")


def ask(arguments: argparse.Namespace, question: Callable[[CheckpointClient], Awaitable[T]]) -> T:
    """What the daemon answers (``CheckpointError``)."""

    async def main() -> T:
        return await question(CheckpointClient(arguments.socket, answer_timeout=arguments.timeout))

    return trio.run(main)


def workspace(arguments: argparse.Namespace) -> str:
    """The workspace that was named, by default the current directory (``Failure``)."""
    return named(arguments) or _here()


def named(arguments: argparse.Namespace) -> str | None:
    """The workspace that was named: an id, or a path made absolute, for the daemon has another current directory."""
    given: str | None = arguments.workspace
    if given is None or _ID.fullmatch(given) or os.path.isabs(given):
        return given
    return os.path.join(_here(), given)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time above 0")
    return seconds


def _here() -> str:
    """The current directory as the shell calls it (``Failure``).

    A workspace may be a link, which is its name; and after a rollback what is called so is another directory.
    """
    called = os.environ.get("PWD", "")
    try:
        current = os.getcwd()
    except FileNotFoundError:
        if os.path.isdir(called):
            return called
        raise Failure("the current directory is gone: name the workspace with -w") from None
    return called if os.path.isabs(called) and os.path.samefile(called, current) else current
