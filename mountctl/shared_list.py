"""``mountctl shared list``: the shared spaces of a mount (spec 4.6)."""

import argparse
import json

from mountctl.agent_definitions import add_mountpoint, mountpoint_of
from mountctl.cli import OK
from mountctl.session_options import add_json
from mountctl.shared_spaces import spaces
from mountctl.text import print_table

DESCRIPTION = "Lists the shared spaces of a mount, and the groups that share them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_mountpoint(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    found = list(spaces(mountpoint_of(arguments)))
    if arguments.json:
        rows = [{"name": one.name, "group": one.group, "gid": one.gid, "mode": f"{one.mode:04o}"} for one in found]
        print(json.dumps({"spaces": rows}))
    else:
        print_table(
            ("NAME", "GROUP", "MODE"), ((one.name, one.group or str(one.gid), f"{one.mode:04o}") for one in found)
        )
    return OK
