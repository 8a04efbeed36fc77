"""``ctx checkpoint diff``: what changed between two snapshots (spec 6.2)."""

import argparse
import json

import msgspec

from backend.checkpoints.wire import ChangeType
from mountctl.checkpoint_options import add_daemon, add_workspace, ask, workspace
from mountctl.cli import OK
from mountctl.text import escaped_name

DESCRIPTION = "Shows what changed between two snapshots: + added, M modified, - deleted, R renamed."

_SIGNS = {ChangeType.Added: "+", ChangeType.Modified: "M", ChangeType.Deleted: "-", ChangeType.Renamed: "R"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workspace(parser)
    parser.add_argument("-f", "--from", dest="old", metavar="ID", required=True, help="the older snapshot")
    parser.add_argument("-t", "--to", dest="new", metavar="ID", required=True, help="the newer snapshot")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    changes = ask(arguments, lambda client: client.diff(workspace(arguments), arguments.old, arguments.new))
    if arguments.json:
        print(json.dumps({"changes": [msgspec.to_builtins(change) for change in changes]}))
        return OK
    for change in changes:
        detail = f" ({escaped_name(change.detail)})" if change.detail else ""
        print(f"{_SIGNS[change.change_type]}  {escaped_name(change.path)}{detail}")
    return OK
