"""``ctx checkpoint health``: what needs looking after, before it is too late (spec 6.2)."""

import argparse
import json

import msgspec

from backend.checkpoints.wire import FULL_PERCENT, MANY_SNAPSHOTS
from mountctl.checkpoint_options import add_daemon, ask
from mountctl.cli import OK
from mountctl.text import bytes_text

DESCRIPTION = "Shows how many workspaces have more than 1000 snapshots, and how full their disk is."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    health = ask(arguments, lambda client: client.health_advisory())
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(health)))
        return OK
    total, used = health.fs_total_bytes, health.fs_used_bytes
    advice = ": clean up" if used * 100 > total * FULL_PERCENT else ""
    print(f"{bytes_text(used)} of {bytes_text(total)} used{advice}" if total else "how full the disk is is not known")
    if health.over_limit_workspace_count:
        print(f"{health.over_limit_workspace_count} workspaces have more than {MANY_SNAPSHOTS} snapshots: clean up")
    return OK
