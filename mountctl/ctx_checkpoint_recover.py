"""``ctx checkpoint recover``: makes a workspace an ordinary directory again (spec 6.2)."""

import argparse
import json

from ctxfs.checkpoints.client import CheckpointClient
from mountctl.checkpoint_options import add_daemon, add_workspace, ask, workspace
from mountctl.cli import OK, USAGE, Failure
from mountctl.text import escaped_name, is_confirmed

DESCRIPTION = "Makes a workspace an ordinary directory again, as it is now, and deletes all its snapshots."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workspace(parser)
    parser.add_argument("--all", action="store_true", help="all my workspaces")
    parser.add_argument("--force", action="store_true", help="do not ask")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.all and arguments.workspace is not None:
        raise Failure("--all and --workspace exclude each other", USAGE)
    targets = ask(arguments, _all) if arguments.all else [workspace(arguments)]
    if targets and not arguments.force and not is_confirmed(f"Delete all snapshots of {', '.join(targets)}?"):
        raise Failure("nothing was done: confirm it at a terminal, or pass --force", USAGE)
    recovered = [_recover(arguments, target) for target in targets]
    if arguments.json:
        print(json.dumps({"recovered": recovered}))
    else:
        for path in recovered:
            print(f"recovered {escaped_name(path)}")
    return OK


async def _all(client: CheckpointClient) -> list[str]:
    return [each.ws_id for each in (await client.status()).workspaces]


def _recover(arguments: argparse.Namespace, target: str) -> str:
    return ask(arguments, lambda client: client.recover(target))
