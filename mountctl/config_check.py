"""``mountctl config check``: whether the configuration can be used; exit 1 and the place if not (spec 4.6)."""

import argparse
import os

from ctxfs.config import SYSTEM_FILE, load, user_file
from mountctl.cli import OK

DESCRIPTION = "Checks the configuration files and the CTXFS_* environment; names file and line of the first mistake."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(arguments: argparse.Namespace) -> int:
    del arguments
    load({})
    files = [str(file) for file in (SYSTEM_FILE, user_file(os.environ)) if file.exists()]
    print("the configuration is valid (" + (", ".join(files) or "no file, defaults only") + ")")
    return OK
