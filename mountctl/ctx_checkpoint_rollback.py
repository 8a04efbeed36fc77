"""``ctx checkpoint rollback``: makes a workspace what a snapshot holds (spec 6.2)."""

import argparse
import json

from mountctl.checkpoint_options import add_daemon, add_snapshot, add_workspace, ask, workspace
from mountctl.cli import OK
from mountctl.text import escaped_name

DESCRIPTION = """Makes a workspace what a snapshot holds. What it holds now is lost unless a checkpoint was made of it;
snapshots stay."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workspace(parser)
    add_snapshot(parser)
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    answer = ask(arguments, lambda client: client.rollback(workspace(arguments), arguments.snapshot))
    if arguments.json:
        print(json.dumps({"ws_id": answer.from_, "id": answer.to}))
    else:
        print(f"{escaped_name(answer.from_)} is now what {escaped_name(answer.to)} holds")
    return OK
