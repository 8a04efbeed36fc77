"""``ctx agent session branch``: a session that shares the first entries of another (spec 4.2, 2.8)."""

import argparse
import errno
import os

from backend.names import child_name
from mountctl import places
from mountctl.cli import OK, Failure
from mountctl.ctx_session_new import name_taken, new_name
from mountctl.session_options import add_session, natural
from mountctl.sessions import attribute, require_session
from mountctl.text import escaped_name

DESCRIPTION = """Makes a session that holds the first entries of another and then goes its own way; nothing is copied.
Prints where it is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("--at", type=natural, metavar="N", help="so many entries; default: all")
    parser.add_argument("--name", metavar="B", help="its name; default: the session's, + and 8 hex digits")


def run(arguments: argparse.Namespace) -> int:
    given = None if arguments.name is None else new_name(arguments.name)
    directory = places.session(arguments.agent, arguments.session, arguments.space)
    sessions, session = os.path.split(directory)
    name = given or child_name(session, os.urandom(4).hex())
    require_session(directory)
    try:
        os.setxattr(directory, "user.ctx.branch", (name if arguments.at is None else f"{name} {arguments.at}").encode())
    except FileExistsError:
        raise name_taken(arguments.agent, name) from None
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        raise Failure(
            f"{session} has {attribute(directory, 'n')} entries, --at {arguments.at} is beyond them"
        ) from None
    print(escaped_name(f"{sessions}/{name}"))
    return OK
