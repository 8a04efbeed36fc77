"""``ctx status``: the mount, its store, and the caller's home, as the mount itself shows them (spec 4.1)."""

import argparse
import json
from typing import Any

from mountctl import ctx_socket, places
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
    """``{root, mount: {key: value}, version, home, agents, sessions, bytes, unprovable}`` (docs/json.md)."""
    root = places.root()
    try:
        with open(f"{root}/status", encoding="utf-8") as file:
            lines = [line.rstrip("\n").partition("=") for line in file]
    except OSError as error:
        raise places.no_mount(error) from error
    home = places.home()
    figures = (_asked() if ctx_socket.knows(None) else None) or _counted()
    facts = {"root": root, "mount": {key: value for key, _, value in lines}, "home": home}
    return facts | {key: figures.get(key) for key in ("version", "agents", "sessions", "bytes", "unprovable")}


def _asked() -> dict[str, Any] | None:
    """The figures of the caller's home as the daemon has them; None where it has no socket, or does not say."""
    connection = ctx_socket.connect()
    if connection is None:
        return None
    try:
        connection.send({"op": "status", **ctx_socket.place(None)})
        return connection.receive()
    except ctx_socket.Refused:
        return None
    finally:
        connection.close()


def _counted() -> dict[str, Any]:
    """The figures that can be read: of a mount without a socket, and of a home that is not the caller's."""
    directories = [f"{places.owner(owner, None)}/session" for owner in owners(None)]
    sessions = [f"{directory}/{name}" for directory in directories for name in names(directory)]
    return {"agents": len(directories), "sessions": len(sessions), "bytes": sum(map(size_of, sessions))}


def _text(facts: dict[str, Any]) -> str:
    mount = dict(facts["mount"])
    if str(mount.get("mounted_at")).isdigit():
        mount["mounted_at"] = age_text(int(mount["mounted_at"]))
    held = counted(facts["agents"], "agent"), counted(facts["sessions"], "session"), bytes_text(facts["bytes"])
    rows = [("mount", facts["root"]), ("version", facts["version"]), *mount.items(), ("home", facts["home"])]
    rows.append(("in it", ", ".join(held)))
    if facts["unprovable"]:
        rows.append(("damaged", f"{counted(facts['unprovable'], 'session')}: `ctx doctor AGENT` says where"))
    return "\n".join(f"{key:<12}{escaped_name(value)}" for key, value in rows if value is not None)
