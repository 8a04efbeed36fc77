"""``mountctl uninstall``: removes what ``mountctl install`` put in place, and nothing else (spec 4.6)."""

import argparse
import os

from mountctl.cli import OK
from mountctl.install import add_place, files, is_ours, stale

DESCRIPTION = """Removes the units, the mount helper, man pages and completions. Stores, configuration and mounts stay:
stop the services first (`systemctl disable --now ctxfs`)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser)


def run(arguments: argparse.Namespace) -> int:
    for path in (*(file.path for file in files(arguments.root)), *stale(arguments.root)):
        if not os.path.lexists(path):
            continue
        if not is_ours(path):
            print(f"kept {path}, which is not ours")
            continue
        if not arguments.dry_run:
            path.unlink()
        print(f"{'would remove' if arguments.dry_run else 'removed'} {path}")
    return OK
