"""``ctx agent session checkpoint``: a snapshot of the directory that a session works in (spec 6.8)."""

import argparse
import json
import sys

from mountctl import places
from mountctl.checkpoint_options import add_daemon, ask
from mountctl.cli import OK
from mountctl.session_options import add_session
from mountctl.session_workspace import take, workspace_of
from mountctl.sessions import require_session
from mountctl.text import escaped_name

DESCRIPTION = """Takes a snapshot of the directory that a session works in, records it in the session's log, and prints
its id. `rewind --files` goes back to it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("-m", "--message", metavar="TEXT", help="what it is of")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    directory = places.session(arguments.agent, arguments.session, arguments.space)
    require_session(directory)
    workspace = workspace_of(arguments.agent, directory)
    id = ask(arguments, lambda client: take(client, arguments.agent, directory, workspace, arguments.message))
    if arguments.json:
        print(json.dumps({"id": id, "workspace": workspace}))
    elif id is None:
        print(f"nothing to take: {escaped_name(workspace)} is empty", file=sys.stderr)
    else:
        print(id)
    return OK
