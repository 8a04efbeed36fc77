"""``ctx agent chat``: a message a line, each a send of its own (spec 4.2)."""

import argparse
import os
import sys

from mountctl.cli import ERROR, OK, Failure, complain
from mountctl.conversing import conversation, message, new_id, send
from mountctl.session_options import add_session

DESCRIPTION = """Sends each line that is typed, and prints the reply before the next. Ctrl-C cancels a reply, Ctrl-D
ends. On a pipe the exit code is 1 if a line failed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)


def run(arguments: argparse.Namespace) -> int:
    where = conversation(arguments)
    failed = False
    with where.connected() as connection:
        while line := _line():
            if not (raw := line.removesuffix(b"\n")).strip():
                continue
            try:
                failed |= send(where, connection, {"id": new_id(), "input": message(raw)}) != OK
            except Failure as failure:
                complain("ctx", str(failure), failure.exit_code)
                failed = True
    return ERROR if failed and not sys.stdin.isatty() else OK


def _line() -> bytes:
    """The next line, with its newline; empty at the end."""
    if not sys.stdin.isatty():
        return sys.stdin.buffer.readline()
    try:
        return os.fsencode(input("> ")) + b"\n"
    except EOFError:
        print()
        return b""
