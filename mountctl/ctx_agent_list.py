"""``ctx agent list``: the agents with sessions, how many, the newest and its state (spec 4.1)."""

import argparse
import json
from typing import NamedTuple

from mountctl.cli import OK
from mountctl.session_options import add_json, add_space
from mountctl.session_rows import newest
from mountctl.sessions import owners
from mountctl.text import age_text, print_table

DESCRIPTION = "Lists the agents and models that have sessions: how many, the most recently updated one, and its state."


class Agent(NamedTuple):
    """One row; ``updated_at`` in seconds since the epoch."""

    agent: str
    sessions: int
    newest: str
    updated_at: int
    state: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_space(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    found = agents(arguments.space)
    if arguments.json:
        print(json.dumps({"agents": [agent._asdict() for agent in found]}))
    else:
        rows = [(a.agent, str(a.sessions), a.newest, age_text(a.updated_at), a.state) for a in found]
        print_table(("agent", "sessions", "newest", "updated", "state"), rows)
    return OK


def agents(space: str | None) -> list[Agent]:
    """The agents and models of a space that have sessions, by name."""
    return [Agent(name, *found) for name in owners(space) if (found := _newest(name, space))]


def _newest(agent: str, space: str | None) -> tuple[int, str, int, str] | None:
    found = newest(agent, space)
    if found is None:
        return None
    count, row = found
    return count, row.name, row.updated_at, row.state
