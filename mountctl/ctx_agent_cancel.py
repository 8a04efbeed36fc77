"""``ctx agent cancel``: ends a run (spec 4.2, 3.2)."""

import argparse

from mountctl.cli import OK
from mountctl.conversing import conversation
from mountctl.session_options import add_session
from mountctl.text import escaped_name

DESCRIPTION = "Ends a run that is active in a session, or takes a send out of its queue."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("id", metavar="ID", help="the run's own id, or the one that it was sent with")


def run(arguments: argparse.Namespace) -> int:
    where = conversation(arguments)
    with where.connected() as connection:
        connection.send({"op": "cancel", "id": arguments.id, **where.fields})
        done = connection.receive()
    print(f"{done['status']} {escaped_name(str(done.get('run', arguments.id)))}")
    return OK
