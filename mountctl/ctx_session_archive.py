"""``ctx agent session archive``: puts one session aside, read-only and whole (spec 4.4)."""

import argparse

from mountctl import archiving, places
from mountctl.cli import OK, UNAVAILABLE, Failure
from mountctl.session_options import add_agent, add_archive_dir
from mountctl.sessions import require_session

DESCRIPTION = """Moves a session to archived_sessions/, where it is read-only, and takes it out of the index. The
default session, the current one and one that is active are refused (exit code 69), and nothing is ever replaced."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_agent(parser)
    parser.add_argument("session", metavar="SESSION")
    add_archive_dir(parser)


def run(arguments: argparse.Namespace) -> int:
    name, chosen = places.session_name(arguments.session), archiving.archive_dir(arguments.archive_dir)
    owner = archiving.owner_of(arguments.agent, arguments.space)
    shelf = archiving.shelf_of(owner, chosen)
    if reason := archiving.protection(owner, name):
        raise Failure(f"refusing to archive protected session: {name}: {reason}", UNAVAILABLE)
    require_session(f"{owner.sessions}/{name}")
    if failure := archiving.conflict(shelf, name):
        raise failure
    with archiving.archiving(owner, shelf) as archive:
        archive(name)
    print(f"archived {name}")
    return OK
