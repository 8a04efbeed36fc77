"""``ctx agent session new``: makes a session (spec 4.2)."""

import argparse
import contextlib
import os

from backend.names import MAX_NAME, is_session_name
from mountctl import places
from mountctl.cli import OK, USAGE, Failure
from mountctl.session_options import add_agent, stable_path
from mountctl.text import escaped_name

DESCRIPTION = "Makes an empty session, and the agent's directory if this is its first; prints where it is."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_agent(parser)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--cwd", type=stable_path, metavar="P", help="its working directory, an absolute path")


def run(arguments: argparse.Namespace) -> int:
    path = make(arguments.agent, arguments.name, arguments.space)
    if arguments.cwd is not None:
        with open(f"{path}/cwd", "w", encoding="utf-8") as file:
            file.write(f"{arguments.cwd}\n")
    print(escaped_name(path))
    return OK


def make(agent: str, name: str, space: str | None) -> str:
    """Makes a session; its directory (``Failure``: the name is taken or cannot be one)."""
    path = places.session(agent, new_name(name), space)
    make_owner(agent, space)
    try:
        os.mkdir(path)
    except FileExistsError:
        raise name_taken(agent, name) from None
    return path


def name_taken(agent: str, name: str) -> Failure:
    """The failure of a command that makes a session where there is one."""
    return Failure(f"{agent} has a session {name!r} already")


def new_name(name: str) -> str:
    """``name`` if a session can be made that is called so (``Failure``, usage, which says the rule)."""
    if not is_session_name(name):
        rule = f"at most {MAX_NAME} letters, digits and . _ + -, a letter or digit first, and not NAME.sock or NAME.d"
        raise Failure(f"{places.invalid_name(name, 'session')}: {rule}", USAGE)
    return name


def make_owner(agent: str, space: str | None) -> None:
    """Makes an agent's or model's directory if it is missing."""
    directory = places.owner(agent, space)
    missing = [directory] if agent.count("/") == 0 else [os.path.dirname(directory), directory]
    for path in missing:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
