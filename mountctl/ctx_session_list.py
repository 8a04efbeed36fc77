"""``ctx agent session list``: the sessions of one agent, most recently updated first (spec 4.1)."""

import argparse
import json
from itertools import islice

from mountctl.cli import OK
from mountctl.progress import followed
from mountctl.session_options import STATES, add_agent, add_json, natural
from mountctl.session_rows import rows
from mountctl.sessions import SessionRow, directory_of, names
from mountctl.text import age_text, bytes_text, print_table

DESCRIPTION = "Lists an agent's sessions, most recently updated first."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_agent(parser)
    parser.add_argument("--state", choices=STATES, help="only those in this state")
    parser.add_argument("-n", "--limit", type=natural, metavar="N", help="at most so many")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    total = len(names(directory_of(arguments.agent, arguments.space)))
    listed = followed(rows(arguments.agent, arguments.space), total)
    found = islice((row for row in listed if arguments.state in (None, row.state)), arguments.limit)
    if arguments.json:
        print(json.dumps({"sessions": [row._asdict() for row in found]}))
    else:
        print_table(("name", "state", "updated", "entries", "size", "cwd", "parent"), map(_cells, found))
    return OK


def _cells(row: SessionRow) -> tuple[str, ...]:
    entries = "" if row.entries is None else str(row.entries)
    return row.name, row.state, age_text(row.updated_at), entries, bytes_text(row.size), row.cwd, row.parent or ""
