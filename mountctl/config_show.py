"""``mountctl config show``: the effective configuration and where each value comes from (spec 4.6)."""

import argparse
import json
from collections.abc import Mapping

from ctxfs.config import Schema, load, rows
from mountctl.cli import OK
from mountctl.session_options import add_json
from mountctl.text import print_table

DESCRIPTION = "Shows every setting, its value, and where that comes from."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = list(rows(load({})))
    if arguments.json:
        print(json.dumps({key: {"value": value, "origin": origin} for key, value, origin, _ in settings}))
    else:
        print_table(("setting", "value", "from", "is"), [(key, _text(value), *rest) for key, value, *rest in settings])
    return OK


def _text(value: str | int | Schema) -> str:
    return ", ".join(f"{key}: {kind}" for key, kind in value.items()) if isinstance(value, Mapping) else str(value)
