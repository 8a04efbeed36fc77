"""``ctx agent output``: the bytes of latest.md (spec 4.1).

The command that scripts call most: ``quick`` answers the plain forms without argparse and everything it imports.
"""

from __future__ import annotations

import os

from mountctl import places
from mountctl.cli import OK

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

DESCRIPTION = "Prints the last text of the assistant, byte for byte as latest.md has it."

_CHUNK = 1 << 20


def quick(arguments: list[str]) -> int | None:
    """``AGENT`` or ``AGENT -s S``; None for every other form."""
    if len(arguments) not in (1, 3) or any(word.startswith("-") for word in (arguments[0], arguments[-1])):
        return None
    if len(arguments) == 3 and arguments[1] not in ("-s", "--session"):
        return None
    return output(arguments[0], arguments[2] if len(arguments) == 3 else None, None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from mountctl.session_options import add_session

    add_session(parser)


def run(arguments: argparse.Namespace) -> int:
    return output(arguments.agent, arguments.session, arguments.space)


def output(agent: str, session: str | None, space: str | None) -> int:
    """Copies latest.md to stdout."""
    copy(f"{places.session(agent, session, space)}/latest.md")
    return OK


def copy(path: str) -> None:
    """Copies a session's file to stdout (``Failure`` where there is no such session)."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise places.no_session(os.path.dirname(path)) from None
    while chunk := os.read(descriptor, _CHUNK):
        written = 0
        while written < len(chunk):
            written += os.write(1, chunk[written:])
    os.close(descriptor)
