"""``ctx agent tree``: an agent's sessions as a tree of branches (spec 4.1, 2.8)."""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mountctl.cli import OK
from mountctl.progress import followed
from mountctl.session_options import add_agent, add_json
from mountctl.session_rows import rows
from mountctl.sessions import SessionRow, directory_of, names
from mountctl.text import age_text, counted, escaped_name, styled

DESCRIPTION = """Shows which session was branched from which, and after how many entries. One whose parent is not there
any more stands at the top and names it."""


class Node(NamedTuple):
    """A session in the tree; ``rails``: for each level above it and its own, whether a sibling follows."""

    row: SessionRow
    rails: tuple[bool, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_agent(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    total = len(names(directory_of(arguments.agent, arguments.space)))
    nodes = tree(followed(rows(arguments.agent, arguments.space), total))
    if arguments.json:
        print(json.dumps({"sessions": [{"depth": len(node.rails), **node.row._asdict()} for node in nodes]}))
    else:
        for node in nodes:
            print(_line(node))
    return OK


def tree(sessions: Iterable[SessionRow]) -> Iterator[Node]:
    """Each session after its parent: the roots as they come, branches by where they begin."""
    found = list(sessions)
    ids = {row.id for row in found}
    children = defaultdict[str | None, list[SessionRow]](list)
    for row in found:
        children[row.parent if row.parent in ids else None].append(row)
    # A stack, as chains of branches may be longer than Python nests calls.
    waiting = [Node(row, ()) for row in reversed(children.pop(None, []))]
    while waiting:
        node = waiting.pop()
        yield node
        below = sorted(children.pop(node.row.id, []), key=lambda row: (-1 if row.at is None else row.at, row.name))
        last = len(below) - 1
        waiting += [Node(row, (*node.rails, at < last)) for at, row in reversed(list(enumerate(below)))]


def _line(node: Node) -> str:
    row, lead = node.row, ""
    if node.rails:
        *above, own = node.rails
        lead = "".join("│  " if follows else "   " for follows in above) + ("├─ " if own else "└─ ")
    facts = [counted(row.entries or 0, "entry", "entries"), row.state, age_text(row.updated_at)]
    if row.parent is not None:
        facts.insert(0, f"at {row.at}" if node.rails else f"of {escaped_name(row.parent)} at {row.at}")
    return f"{lead}{styled(escaped_name(row.name), '1')}  {', '.join(facts)}"
