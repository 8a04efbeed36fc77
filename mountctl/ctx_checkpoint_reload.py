"""``ctx checkpoint reload``: makes the checkpoint daemon read its configuration again (spec 6.2)."""

import argparse
import json

from mountctl.checkpoint_options import add_daemon, ask
from mountctl.cli import OK

DESCRIPTION = "Makes the daemon read its configuration file again; root only."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    ask(arguments, lambda client: client.reload_config())
    print(json.dumps({"reloaded": True}) if arguments.json else "reloaded")
    return OK
