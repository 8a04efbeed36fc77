"""``ctx agent session export``: a session as a file for other programs (spec 4.2)."""

import argparse
import importlib
from typing import cast

from mountctl.cli import OK
from mountctl.exporting import FORMATS, Format, find
from mountctl.session_options import add_session
from mountctl.text import escaped_name

DESCRIPTION = """Writes a session into a directory, readable by its owner alone, and prints the path. A file that an
earlier export left there is replaced."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("--to", dest="form", required=True, choices=sorted(FORMATS), help="what is to read it")
    parser.add_argument("directory", metavar="DIR", help="made if it is missing")


def run(arguments: argparse.Namespace) -> int:
    form = cast(Format, importlib.import_module(FORMATS[arguments.form]))
    session = find(arguments.agent, arguments.session, arguments.space)
    print(escaped_name(form.export(session, arguments.directory)))
    return OK
