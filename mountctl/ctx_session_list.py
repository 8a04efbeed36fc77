"""``ctx agent session list``: the sessions of one agent, most recently updated first (spec 4.1)."""

import argparse
import json

from mountctl.cli import OK
from mountctl.session_options import add_agent, add_json
from mountctl.sessions import SessionRow, directory_of, rows
from mountctl.text import age_text, bytes_text, table

DESCRIPTION = "Lists an agent's sessions, most recently updated first."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_agent(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    found = list(rows(directory_of(arguments.agent, arguments.space)))
    if arguments.json:
        print(json.dumps({"sessions": [row._asdict() for row in found]}))
    elif found:
        print(table(("name", "state", "updated", "entries", "size", "cwd", "parent"), map(_cells, found)))
    return OK


def _cells(row: SessionRow) -> tuple[str, ...]:
    entries = "" if row.entries is None else str(row.entries)
    return row.name, row.state, age_text(row.updated_at), entries, bytes_text(row.size), row.cwd, row.parent or ""
