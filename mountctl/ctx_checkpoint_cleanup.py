"""``ctx checkpoint cleanup``: deletes the oldest snapshots of a workspace (spec 6.2)."""

import argparse
import json

from mountctl.checkpoint_options import add_daemon, add_workspace, ask, workspace
from mountctl.cli import OK
from mountctl.session_options import natural
from mountctl.text import escaped_name

DESCRIPTION = "Deletes the oldest snapshots; pinned ones are neither counted nor deleted."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workspace(parser)
    parser.add_argument("--keep", metavar="N", type=_count, help="how many to keep (20)")
    add_daemon(parser)


def _count(text: str) -> int:
    """As many as the protocol has room for."""
    count = natural(text)
    if count >= 1 << 32:
        raise argparse.ArgumentTypeError(f"{text} is more than can be kept")
    return count


def run(arguments: argparse.Namespace) -> int:
    removed = ask(arguments, lambda client: client.cleanup(workspace(arguments), arguments.keep))
    if arguments.json:
        print(json.dumps({"removed": removed}))
    else:
        for id in removed:
            print(f"deleted {escaped_name(id)}")
    return OK
