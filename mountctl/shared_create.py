"""``mountctl shared create``: makes a shared space (spec 4.6, 1.8)."""

import argparse
import os

from mountctl.cli import OK, USAGE, Failure
from mountctl.shared_spaces import add_space, gid_of, path_of

DESCRIPTION = "Makes a space whose sessions the members of a group share."
DEFAULT_MODE = "2770"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_space(parser)
    parser.add_argument("--group", required=True, metavar="G", help="by name or number")
    parser.add_argument("--mode", default=DEFAULT_MODE, metavar="OCTAL", help=f"default: {DEFAULT_MODE}")


def run(arguments: argparse.Namespace) -> int:
    path, gid, mode = path_of(arguments), gid_of(arguments.group), _mode(arguments.mode)
    try:
        os.mkdir(path)
    except FileExistsError:
        raise Failure(f"shared space {arguments.name!r} exists") from None
    try:
        os.chown(path, -1, gid)
        os.chmod(path, mode)
    except OSError:
        os.rmdir(path)
        raise
    return OK


def _mode(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o7777:
        raise Failure(f"--mode {text!r} is no octal mode", USAGE)
    return mode
