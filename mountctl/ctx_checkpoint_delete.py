"""``ctx checkpoint delete``: deletes a snapshot (spec 6.2)."""

import argparse
import json

from backend.checkpoints.errors import ConfirmationRequired
from mountctl.checkpoint_options import add_daemon, add_snapshot, add_workspace, ask, named
from mountctl.cli import ERROR, OK, Failure
from mountctl.text import escaped_name, is_confirmed

DESCRIPTION = "Deletes a snapshot. A pinned one only if that is confirmed, at a terminal or by --force."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workspace(parser, "wherever the snapshot is, if that is one workspace")
    add_snapshot(parser)
    parser.add_argument("--force", action="store_true", help="delete it even if it is pinned")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    try:
        deleted = _delete(arguments, arguments.force)
    except ConfirmationRequired as error:
        if not is_confirmed(f"{arguments.snapshot} is pinned. Delete it?"):
            raise Failure(str(error), ERROR) from error
        deleted = _delete(arguments, True)
    print(json.dumps({"id": deleted}) if arguments.json else f"deleted {escaped_name(deleted)}")
    return OK


def _delete(arguments: argparse.Namespace, force: bool) -> str:
    return ask(arguments, lambda client: client.delete(named(arguments), arguments.snapshot, force))
