"""``mountctl agent set``: changes a definition (spec 4.6)."""

import argparse

from mountctl.agent_definitions import add_name, add_values, existing, values_of
from mountctl.cli import OK, USAGE, Failure

DESCRIPTION = """Changes what is given of an agent's definition; an empty text takes a value back. Runs that are active
go on as they are."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_name(parser)
    add_values(parser, exec_required=False)


def run(arguments: argparse.Namespace) -> int:
    definition = existing(arguments)
    values = values_of(arguments, definition)
    if not values:
        raise Failure("nothing to change: see `mountctl agent set --help`", USAGE)
    definition.write(values)
    return OK
