"""``mountctl agent remove``: takes a definition back (spec 4.6)."""

import argparse
import os

from mountctl.agent_definitions import add_name, existing
from mountctl.cli import OK

DESCRIPTION = "Takes an agent's definition back: it answers no more. Its sessions stay where they are."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_name(parser)


def run(arguments: argparse.Namespace) -> int:
    os.rmdir(existing(arguments).path)
    return OK
