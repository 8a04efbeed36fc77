"""``ctx checkpoint list``: the snapshots of a workspace, or of all (spec 6.2)."""

import argparse
import json
from typing import Any

import msgspec

from backend.checkpoints.times import parse_timestamp
from backend.checkpoints.wire import SnapshotEntry, parse_metadata
from mountctl.checkpoint_options import add_daemon, add_workspace, ask, named
from mountctl.cli import OK
from mountctl.text import age_text, print_table

DESCRIPTION = "Lists snapshots, oldest first."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workspace(parser, "all")
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    found = ask(arguments, lambda client: client.list(named(arguments)))
    if arguments.json:
        print(json.dumps({"snapshots": [_json(entry) for entry in found]}))
    else:
        print_table(("workspace", "snapshot", "created", "is", "message"), map(_cells, found))
    return OK


def _json(entry: SnapshotEntry) -> dict[str, Any]:
    """The entry, with its metadata as the JSON value that it is."""
    value: dict[str, Any] = msgspec.to_builtins(entry)
    if entry.meta.metadata is not None:
        value["meta"]["metadata"] = parse_metadata(entry.meta.metadata)
    return value


def _cells(entry: SnapshotEntry) -> tuple[str, ...]:
    meta = entry.meta
    state = ", ".join(word for word, holds in (("pinned", meta.pinned), ("missing", meta.missing)) if holds)
    created = age_text(parse_timestamp(meta.created_at) // 1_000_000_000)
    return entry.workspace, entry.id, created, state, meta.message or ""
