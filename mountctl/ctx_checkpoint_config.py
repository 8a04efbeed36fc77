"""``ctx checkpoint config``: the running configuration of the checkpoint daemon (spec 6.2)."""

import argparse
import json
from typing import Any

import msgspec

from mountctl.checkpoint_options import add_daemon, ask
from mountctl.cli import OK
from mountctl.text import print_table

DESCRIPTION = "Shows the daemon's running configuration. docs/checkpoints.md says what its file may hold."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    report: dict[str, Any] = msgspec.to_builtins(ask(arguments, lambda client: client.config()))
    if arguments.json:
        print(json.dumps(report))
        return OK
    (keep,) = report["auto_cleanup_keep"].values()
    rows = report | {"auto_cleanup_keep": keep}
    print_table(("setting", "value"), [(key, str(value)) for key, value in rows.items()])
    return OK
