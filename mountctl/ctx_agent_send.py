"""``ctx agent send``: one message to an agent, and its reply as it comes (spec 4.2, 3.2)."""

import argparse
import os
import sys

from mountctl.conversing import SCOPES, conversation, message, new_id, send
from mountctl.session_options import add_session, message_id, stable_path

DESCRIPTION = """Sends a message to an agent and prints its reply as it comes. The first Ctrl-C cancels the run, the
second leaves. Sent again with the same --id, it is not run again: its outcome is shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("text", nargs="?", default="-", metavar="TEXT", help="the message; - or nothing: stdin")
    parser.add_argument("--id", type=message_id, metavar="ID", help="by which a retry is known; default: a new one")
    parser.add_argument("--cwd", type=stable_path, metavar="P", help="where the agent works, a path of its view")
    parser.add_argument("--scope", choices=SCOPES, help="default: private, with --space shared; temp: kept nowhere")
    parser.add_argument("--queue", action="store_true", help="where a run is active, wait for its end")


def run(arguments: argparse.Namespace) -> int:
    where = conversation(arguments, arguments.scope)
    raw = sys.stdin.buffer.read().removesuffix(b"\n") if arguments.text == "-" else os.fsencode(arguments.text)
    request = {"id": arguments.id or new_id(), "input": message(raw), "queue": arguments.queue}
    if arguments.cwd is not None:
        request["cwd"] = arguments.cwd
    with where.connected() as connection:
        return send(where, connection, request)
