"""``ctx session-control``: cosh-core's protocol for managing provider sessions, in its place (spec 5).

cosh-shell waits for every answer, so ``quick`` gives it without argparse, and ends the process as soon as it is given.
"""

from __future__ import annotations

import os

from backend.envelopes.control import MAX_REQUEST, answer, unreadable
from mountctl.cli import ERROR, OK, complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

DESCRIPTION = """Reads one JSON request from stdin and prints one JSON answer, as cosh-core --session-control does
(docs/session-control.md)."""


def quick(arguments: list[str]) -> int | None:
    """The only form that there is; None for everything else, which argparse answers."""
    if arguments:
        return None
    os._exit(respond())  # taking the interpreter down takes a tenth of the whole time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None: everything is in the request."""


def run(_: argparse.Namespace) -> int:
    return respond()


def respond() -> int:
    """Answers the request on stdin; whatever it takes to answer, nothing else is printed on stdout."""
    try:
        found = answer(_request())
    except OSError as error:
        found = unreadable(error)
    for warning in found.warnings:
        complain("ctx", warning, OK)
    left = memoryview(found.line)
    while left:
        left = left[os.write(1, left) :]
    return OK if found.ok else ERROR


def _request() -> bytes:
    """All of stdin, or its first bytes where it is longer than any request."""
    raw = bytearray()
    while len(raw) <= MAX_REQUEST and (chunk := os.read(0, MAX_REQUEST + 1 - len(raw))):
        raw += chunk
    return bytes(raw)
