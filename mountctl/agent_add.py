"""``mountctl agent add``: defines an agent or a model (spec 4.6)."""

import argparse
import contextlib
import os

from mountctl.agent_definitions import add_name, add_values, definition_of, values_of
from mountctl.cli import OK, Failure

DESCRIPTION = """Defines an agent, for every user unless it has an owner; it answers at once. An executable that cannot
be found where the agent would look for it is refused. docs/agents.md says what an agent is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_name(parser)
    add_values(parser, exec_required=True)


def run(arguments: argparse.Namespace) -> int:
    definition = definition_of(arguments)
    values = values_of(arguments, definition)
    with contextlib.suppress(FileExistsError):
        if os.path.dirname(definition.path) != f"{definition.mountpoint}/agent":
            os.mkdir(os.path.dirname(definition.path))
    try:
        os.mkdir(definition.path)
    except FileExistsError:
        raise Failure(f"{arguments.name} is defined: `mountctl agent set` changes it") from None
    try:
        definition.write(values)
    except OSError as error:
        os.rmdir(definition.path)
        raise Failure(f"{arguments.name} was not defined: {error.strerror}: a value is none") from error
    return OK
