"""``ctx checkpoint init``: puts a directory under the protection of the checkpoint daemon (spec 6.2)."""

import argparse
import json

from mountctl.checkpoint_options import add_daemon, add_workspace, ask, workspace
from mountctl.cli import OK
from mountctl.text import escaped_name

DESCRIPTION = "Puts a directory under protection and prints its workspace id. Of a directory that is, just the id."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workspace(parser)
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    ws_id = ask(arguments, lambda client: client.init(workspace(arguments)))
    print(json.dumps({"ws_id": ws_id}) if arguments.json else escaped_name(ws_id))
    return OK
