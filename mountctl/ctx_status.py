"""``ctx status``: the mount, its store, and the caller's home, as the mount itself shows them (spec 4.1)."""

import argparse
import json
from typing import Any

from mountctl import places
from mountctl.cli import OK
from mountctl.session_options import add_json
from mountctl.sessions import names, owners, size_of
from mountctl.text import age_text, bytes_text, counted, escaped_name

DESCRIPTION = "Shows the mount, what its store says of itself, and how much my home holds."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    facts = gather()
    if arguments.json:
        print(json.dumps(facts))
    else:
        print(_text(facts))
    return OK


def gather() -> dict[str, Any]:
    """``{root, mount: {key: value}, home, agents, sessions, bytes}`` (docs/json.md)."""
    root = places.root()
    try:
        with open(f"{root}/status", encoding="utf-8") as file:
            lines = [line.rstrip("\n").partition("=") for line in file]
    except OSError as error:
        raise places.no_mount(error) from error
    home = places.home()
    directories = [f"{places.owner(owner, None)}/session" for owner in owners(None)]
    sessions = [f"{directory}/{name}" for directory in directories for name in names(directory)]
    mount = {key: value for key, _, value in lines}
    sizes = sum(map(size_of, sessions))
    return {
        "root": root,
        "mount": mount,
        "home": home,
        "agents": len(directories),
        "sessions": len(sessions),
        "bytes": sizes,
    }


def _text(facts: dict[str, Any]) -> str:
    mount = dict(facts["mount"])
    if str(mount.get("mounted_at")).isdigit():
        mount["mounted_at"] = age_text(int(mount["mounted_at"]))
    rows = [("mount", facts["root"]), *mount.items(), ("home", facts["home"])]
    held = counted(facts["agents"], "agent"), counted(facts["sessions"], "session"), bytes_text(facts["bytes"])
    rows.append(("in it", ", ".join(held)))
    return "\n".join(f"{key:<12}{escaped_name(value)}" for key, value in rows)
