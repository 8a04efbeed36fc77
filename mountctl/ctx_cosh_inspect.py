"""``ctx cosh inspect``: shows one session (spec 5.1)."""

import argparse
import json

from mountctl.cli import OK
from mountctl.cosh_options import add_core, as_json, ask, print_summary, workspace

DESCRIPTION = "Shows a session of cosh-core, whatever its health."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="UUID", help="the session's id, as `ctx cosh list` shows it")
    add_core(parser)


def run(arguments: argparse.Namespace) -> int:
    found = ask(arguments, lambda client: client.inspect(workspace(arguments), arguments.session))
    if arguments.json:
        print(json.dumps({"session": as_json(found)}))
    else:
        print_summary(found)
    return OK
