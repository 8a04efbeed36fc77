"""``ctx agent session new``: makes a session (spec 4.2)."""

import argparse
import contextlib
import os

from backend.names import is_owner_name, is_session_name, is_stable_path
from mountctl import places
from mountctl.cli import ERROR, OK, USAGE, Failure
from mountctl.session_options import add_agent
from mountctl.text import escaped_name

DESCRIPTION = "Makes an empty session, and the agent's directory if this is its first; prints where it is."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_agent(parser)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--cwd", metavar="P", help="its working directory, an absolute path")


def run(arguments: argparse.Namespace) -> int:
    if arguments.cwd is not None and not is_stable_path(arguments.cwd):
        raise Failure("--cwd must be an absolute path without empty, . or .. parts", USAGE)
    path = make(arguments.agent, arguments.name, arguments.space)
    if arguments.cwd is not None:
        with open(f"{path}/cwd", "w", encoding="utf-8") as file:
            file.write(f"{arguments.cwd}\n")
    print(escaped_name(path))
    return OK


def make(agent: str, name: str, space: str | None) -> str:
    """Makes a session; its directory (``Failure``: the name is taken or cannot be one)."""
    path = places.session(agent, name, space)
    if not is_session_name(name):
        raise no_name(name, "a session")
    make_owner(agent, space)
    try:
        os.mkdir(path)
    except FileExistsError:
        raise name_taken(agent, name) from None
    return path


def name_taken(agent: str, name: str) -> Failure:
    """The failure of a command that makes a session where there is one."""
    return Failure(f"{agent} has a session {name!r} already")


def no_name(name: str, of: str, exit_code: int = ERROR) -> Failure:
    """The failure of a command that is to make something of a name that nothing can have."""
    rule = "at most 64 letters, digits and . _ + -, a letter or digit first, and not NAME.sock or NAME.d"
    return Failure(f"{name!r} is no name of {of}: {rule}", exit_code)


def require_owner_name(agent: str, exit_code: int = ERROR) -> None:
    """``Failure`` unless an agent, or after ``model:`` a model, can be called that."""
    if not is_owner_name(agent):
        raise no_name(agent, "an agent or model", exit_code)


def make_owner(agent: str, space: str | None) -> None:
    """Makes an agent's or model's directory if it is missing."""
    directory = places.owner(agent, space)
    require_owner_name(agent)
    missing = [directory] if agent.count("/") == 0 else [os.path.dirname(directory), directory]
    for path in missing:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
