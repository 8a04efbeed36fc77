"""``mountctl uninstall``: removes what ``mountctl install`` put in place, and nothing else (spec 4.6)."""

import argparse

from mountctl.cli import OK
from mountctl.install import add_place, files

DESCRIPTION = """Removes the units, the mount helper, man pages and completions. Stores, configuration and mounts stay:
stop the services first (`systemctl disable --now ctxfs`)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser)


def run(arguments: argparse.Namespace) -> int:
    for file in files(arguments.root):
        if not file.path.exists():
            continue
        print(f"{'would remove' if arguments.dry_run else 'removed'} {file.path}")
        if not arguments.dry_run:
            file.path.unlink()
    return OK
