"""``ctx cosh list``: the sessions of a workspace (spec 5.1)."""

import argparse
import json

from backend.envelopes.control import DEFAULT_LIMIT
from ctxfs.cosh.client import Summary
from mountctl.cli import OK, complain
from mountctl.cosh_options import add_core, as_json, ask, workspace
from mountctl.session_options import natural
from mountctl.text import age_text, print_table

DESCRIPTION = "Lists sessions of cosh-core, the most recently written first, a page at a time."

_ALL_LIMIT = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-a", "--all", action="store_true", help="of every workspace")
    parser.add_argument("--limit", metavar="N", type=natural, help="at most so many, 1 to 100 (20; with --all 100)")
    parser.add_argument("--cursor", metavar="C", help="go on where the page before ended")
    add_core(parser)


def run(arguments: argparse.Namespace) -> int:
    limit = arguments.limit if arguments.limit is not None else _ALL_LIMIT if arguments.all else DEFAULT_LIMIT
    page = ask(
        arguments,
        lambda client: client.list(workspace(arguments), limit, arguments.cursor, all_workspaces=arguments.all),
    )
    if arguments.json:
        print(json.dumps(as_json(page)))
        return OK
    print_table(
        ("session", "updated", "health", "messages", "model", "workspace", "prompt"), map(_cells, page.sessions)
    )
    if page.next_cursor is not None:
        complain("ctx", f"there are more: --cursor {page.next_cursor}", OK)
    return OK


def _cells(entry: Summary) -> tuple[str, ...]:
    updated = age_text(entry.updated_at_ms // 1000)
    model, prompt = entry.model or "-", entry.first_prompt or "-"
    return entry.session_id, updated, entry.health, str(entry.message_count), model, entry.workspace_scope, prompt
