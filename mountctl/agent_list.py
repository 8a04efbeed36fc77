"""``mountctl agent list``: the agents and models that are defined (spec 4.6)."""

import argparse
import json
import shlex

from mountctl.agent_definitions import add_mountpoint, as_json, definitions, mountpoint_of
from mountctl.cli import OK
from mountctl.session_options import add_json
from mountctl.text import print_table

DESCRIPTION = (
    "Lists the agents and models that are defined. Every mount has the agent echo besides, which needs no definition."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_mountpoint(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    found = [as_json(name, definition) for name, definition in definitions(mountpoint_of(arguments))]
    if arguments.json:
        print(json.dumps({"agents": found}))
        return OK
    rows = (
        (
            one["name"],
            shlex.join(one["exec"]),
            one["root"] or "each user's own",
            one["cwd"],
            "everybody" if one["owner"] is None else str(one["owner"]),
            one["model"] or "",
        )
        for one in found
    )
    print_table(("NAME", "EXEC", "ROOT", "CWD", "OWNER", "MODEL"), rows)
    return OK
