"""``ctx agent resume``: a session's entries after a cursor, as frames (spec 4.2, 3.2)."""

import argparse
import sys

from backend.strict_json import compact
from mountctl.cli import OK
from mountctl.conversing import conversation
from mountctl.ctx_socket import accepted
from mountctl.session_options import add_session

DESCRIPTION = """Prints the entries of a session after a cursor, one JSON object a line, as the agent's socket sends
them. A cursor is the id of a start or of a tool call, or the number of an entry."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("--after", metavar="C", help="the cursor; default: the session's beginning")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is appended, until interrupted")


def run(arguments: argparse.Namespace) -> int:
    where = conversation(arguments)
    request = {"op": "resume", "follow": arguments.follow, **where.fields}
    if arguments.after is not None:
        request["after"] = arguments.after
    with where.connected() as connection:
        connection.send(request)
        while (frame := connection.receive_frame()).get("type") != "end":
            # The error of a run is an entry as others are.
            if "run" not in frame:
                accepted(frame)
            sys.stdout.buffer.write(compact(frame) + b"\n")
            sys.stdout.buffer.flush()
    return OK
