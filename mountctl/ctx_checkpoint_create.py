"""``ctx checkpoint create``: takes a snapshot of a workspace (spec 6.2)."""

import argparse
import json
import os
import sys
import time

from backend.checkpoints.wire import CheckpointSkipped
from mountctl.checkpoint_options import add_daemon, add_workspace, ask, workspace
from mountctl.cli import OK
from mountctl.text import escaped

DESCRIPTION = "Takes a snapshot of a directory and prints its id. A directory that is no workspace yet becomes one."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workspace(parser)
    parser.add_argument("-i", "--id", metavar="ID", help="its id; default: made of the time")
    parser.add_argument("-m", "--message", metavar="TEXT", help="what it is of")
    parser.add_argument("--metadata", metavar="JSON", help="any JSON value, kept with it")
    parser.add_argument("--pin", action="store_true", help="never clean it up; delete it only with --force")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    id = new_id() if arguments.id is None else arguments.id
    answer = ask(
        arguments,
        lambda client: client.checkpoint(
            workspace(arguments), id, arguments.message, arguments.metadata, arguments.pin
        ),
    )
    skipped = answer.reason if isinstance(answer, CheckpointSkipped) else None
    if arguments.json:
        print(json.dumps({"id": None if skipped else id, "skipped": skipped}))
    elif skipped:
        print(escaped(skipped), file=sys.stderr)
    else:
        print(id)
    return OK


def new_id() -> str:
    """An id that sorts by time and that nobody else makes."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(3).hex()}"
