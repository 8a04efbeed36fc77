"""``ctx checkpoint status``: the checkpoint daemon and its workspaces (spec 6.2)."""

import argparse
import json

import msgspec

from mountctl.checkpoint_options import add_daemon, add_workspace, ask, named
from mountctl.cli import OK
from mountctl.text import bytes_text, duration_text, print_table

DESCRIPTION = "Shows how long the daemon has been running, the workspaces, and how full their disk is."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workspace(parser, "all")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    report = ask(arguments, lambda client: client.status(named(arguments)))
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(report)))
        return OK
    used, total = bytes_text(report.fs_used_bytes), bytes_text(report.fs_total_bytes)
    print(f"running for {duration_text(report.uptime_secs)}, {used} of {total} used")
    rows = [(each.ws_id, each.path, str(each.snapshot_count)) for each in report.workspaces]
    print_table(("workspace", "path", "snapshots"), rows)
    return OK
