"""``ctx agent session select``: makes a session the current one, if asked by compare-and-set (spec 4.2)."""

import argparse
import fcntl
import os

from mountctl import places
from mountctl.cli import OK, UNAVAILABLE, Failure
from mountctl.session_options import add_agent

DESCRIPTION = "Makes a session the agent's current one."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_agent(parser)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--from", dest="expected", metavar="EXPECTED", help="fail (69) unless this one is current now")


def run(arguments: argparse.Namespace) -> int:
    expected = None if arguments.expected is None else places.session_name(arguments.expected)
    select(arguments.agent, places.session_name(arguments.name), arguments.space, expected)
    return OK


def select(agent: str, name: str, space: str | None, expected: str | None = None) -> None:
    """Makes a session the current one (``Failure``: there is none, or another than ``expected`` is current now)."""
    index = f"{places.owner(agent, space)}/session/index"
    descriptor = _open_index(index, agent)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        now = places.current(agent, space)
        if expected not in (None, now):
            raise Failure(f"the current session is {now!r}, not {expected!r}", UNAVAILABLE)
        _select(f"{index}/current", name, agent)
    finally:
        os.close(descriptor)


def _open_index(index: str, agent: str) -> int:
    """The directory whose lock the commands that change the current session hold."""
    try:
        return os.open(index, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        raise Failure(f"{agent} has no sessions") from None


def _select(path: str, name: str, agent: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"{name}\n")
    except FileNotFoundError:
        raise Failure(
            f"{agent} has no session {name!r}: `ctx agent session list {agent}` shows what there is"
        ) from None
