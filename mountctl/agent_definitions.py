"""Definitions of agents and models, through the mount: what ``mountctl agent …`` commands share (spec 4.6)."""

import argparse
import contextlib
import json
import os
import pwd
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from backend.errors import InvalidValue
from backend.names import is_owner_name
from ctxfs import mounts
from ctxfs.agents.cwd import find_executable
from ctxfs.agents.launch import Identity, View
from ctxfs.agents.mount_table import MODES, parse_table
from ctxfs.agents.settings import Settings
from ctxfs.agents.values import check_value
from ctxfs.agents.views import build
from ctxfs.config import load
from ctxfs.health import examine
from mountctl.cli import ERROR, UNAVAILABLE, USAGE, Failure
from mountctl.text import escaped

ADAPTERS = ("cosh",)
VALUES = ("root", "cwd", "mount", "model", "owner", "meta.json", "exec")
"""The files of a definition; the executable comes last, as an agent is there with it."""
PATIENCE_S = 10.0
_HOST = "/"


class Definition(NamedTuple):
    """A definition's directory on a mount."""

    mountpoint: str
    path: str

    def read(self, name: str) -> str:
        """A value without its newline, empty where there is none."""
        try:
            with open(f"{self.path}/{name}", encoding="utf-8") as file:
                return file.read().removesuffix("\n")
        except FileNotFoundError:
            return ""

    def write(self, values: Mapping[str, str]) -> None:
        """Writes values; an empty one takes back what was there."""
        for name in VALUES:
            if name in values and values[name] != self.read(name):
                with open(f"{self.path}/{name}", "w", encoding="utf-8") as file:
                    file.write(f"{values[name]}\n")


def add_mountpoint(parser: argparse.ArgumentParser) -> None:
    """``--mountpoint``."""
    parser.add_argument("--mountpoint", metavar="DIR", help="the mount; default: /ctx, as a user ~/ctx")


def add_name(parser: argparse.ArgumentParser) -> None:
    """NAME and ``--mountpoint``."""
    parser.add_argument("name", metavar="NAME", help="an agent, or model:PROVIDER/MODEL")
    add_mountpoint(parser)


def add_values(parser: argparse.ArgumentParser, *, exec_required: bool) -> None:
    """The options that say what a definition is."""
    text = "what runs: a JSON array, or words as in a shell"
    parser.add_argument("--exec", required=exec_required, metavar="ARGV", help=text)
    parser.add_argument("--root", metavar="DIR", help="the agent's root on the host; default: each user's own")
    parser.add_argument("--cwd", metavar="PATH", help="where it works, a path in that root; default: /")
    parser.add_argument("--owner", metavar="UID", help="the only user who may talk with it, besides root")
    parser.add_argument("--model", metavar="M", help="the model that sessions note")
    text = "what of the host it sees, and where; more than once"
    parser.add_argument("--mount", action="append", metavar="SRC:DST:ro|rw", help=text)
    parser.add_argument("--adapter", choices=ADAPTERS, help="what its output is, where it is not an agent's")


def mountpoint_of(arguments: argparse.Namespace) -> str:
    """Where the mount is that a command means (``Failure``: it is none, or would never answer)."""
    config = load({"mountpoint": arguments.mountpoint})
    mountpoint, mount = config.mountpoint, mounts.mount_at(config.mountpoint)
    ours = mount if mount is not None and mount.fstype == mounts.FSTYPE else None
    if ours is not None and examine(ours, config.runtime_dir, PATIENCE_S).state == "stopped":
        raise Failure(f"the daemon of {mountpoint} does not answer: see `mountctl status`", UNAVAILABLE)
    if not os.path.isfile(f"{mountpoint}/status"):
        where = "`mountctl status` shows what is mounted, --mountpoint names it"
        raise Failure(f"no ctxfs at {mountpoint}: {where}", UNAVAILABLE)
    return mountpoint


def definition_of(arguments: argparse.Namespace) -> Definition:
    """The definition that a command names; it need not be there (``Failure``: it cannot be one)."""
    mountpoint = mountpoint_of(arguments)
    kind, _, name = arguments.name.rpartition(":")
    if not is_owner_name(arguments.name) or (kind and "/" not in name):
        raise Failure(f"{arguments.name!r} is no name of an agent, and not model:PROVIDER/MODEL", USAGE)
    return Definition(mountpoint, f"{mountpoint}/{kind or 'agent'}/{name}.d")


def existing(arguments: argparse.Namespace) -> Definition:
    """As ``definition_of``, of one that is there (``Failure``: it is not)."""
    definition = definition_of(arguments)
    if not os.path.isdir(definition.path):
        raise Failure(f"{arguments.name} is not defined: `mountctl agent list` shows what is")
    return definition


def values_of(arguments: argparse.Namespace, definition: Definition) -> dict[str, str]:
    """The values that the options say, judged together with those that the definition has (``Failure``)."""
    given = {
        "exec": None if arguments.exec is None else json.dumps(_argv(arguments.exec), ensure_ascii=False),
        "root": arguments.root,
        "cwd": arguments.cwd,
        "owner": None if arguments.owner is None else _uid(arguments.owner),
        "model": arguments.model,
        "mount": None if arguments.mount is None else "\n".join(map(_row, filter(None, arguments.mount))),
        "meta.json": _meta(definition, arguments.adapter),
    }
    values = {name: value for name, value in given.items() if value is not None}
    _check(definition, values)
    return values


def _argv(text: str) -> list[str]:
    try:
        argv = json.loads(text) if text.lstrip().startswith("[") else shlex.split(text)
    except ValueError as error:
        raise Failure(f"--exec: {error}", USAGE) from None
    if not argv or not argv[0] or not all(isinstance(word, str) for word in argv):
        raise Failure("--exec is a JSON array of strings, or words as in a shell", USAGE)
    return list(argv)


def _uid(text: str) -> str:
    if not text or text.isdecimal():
        return text
    try:
        return str(pwd.getpwnam(text).pw_uid)
    except KeyError:
        raise Failure(f"--owner: no user {text!r}") from None


def _row(text: str) -> str:
    parts = text.split(":")
    if len(parts) != 3 or parts[2] not in MODES:
        raise Failure(f"--mount {text!r} is not SRC:DST:ro or SRC:DST:rw", USAGE)
    return "\t".join(parts)


def _meta(definition: Definition, adapter: str | None) -> str | None:
    if adapter is None:
        return None
    return json.dumps({**json.loads(definition.read("meta.json") or "{}"), "adapter": adapter}, ensure_ascii=False)


def _check(definition: Definition, values: Mapping[str, str]) -> None:
    """Refuses what the mount would, and what cannot run: the executable is looked for where the agent would find it."""
    for name, text in values.items():
        try:
            check_value(name, text)
        except InvalidValue as error:
            raise Failure(f"--{name} {text!r}: {error}", USAGE if name == "mount" else ERROR) from None

    def value(name: str) -> str:
        return values.get(name, definition.read(name))

    root, argv = value("root"), json.loads(value("exec") or "[]")
    if root and not os.path.isdir(root):
        raise Failure(f"--root: no directory {root!r}")
    rows = tuple(parse_table(value("mount")))
    # Whose root is each user's own is looked at without one; what users put there is usually the host's as well.
    views = [View(root or None, definition.mountpoint, rows), *([] if root else [View(_HOST, definition.mountpoint)])]
    failures = [_failure(view, value("cwd") or "/", argv[0]) for view in views] if argv else []
    if failures and all(failures):
        raise Failure(f"{failures[0]}: --root and --mount say what it sees")
    if len(failures) > 1 and failures[0]:
        note = f"each user's own root has to hold {argv[0]!r}, which this host has; `--root /` lets it see the host"
        print(f"mountctl: {escaped(note)}", file=sys.stderr)


def _failure(view: View, cwd: str, name: str) -> str:
    """Why an executable cannot run in that view, empty if it can. In a child, as a view is a process's own."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        reason = "it cannot be looked for"
        try:
            built = build(view, Identity(os.geteuid(), os.getegid()), "/")
            find_executable(built.root, cwd, name, Settings().path)
            reason = ""
        except OSError as error:
            reason = error.strerror or str(error)
        finally:
            os.write(writer, reason.encode())
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read().decode()


def definitions(mountpoint: str) -> Iterator[tuple[str, Definition]]:
    """Every definition of a mount: as commands name it, agents first, by name."""
    yield from _in(mountpoint, "agent", "")
    with contextlib.suppress(FileNotFoundError):
        for provider in sorted(os.listdir(f"{mountpoint}/model")):
            yield from _in(mountpoint, f"model/{provider}", f"model:{provider}/")


def _in(mountpoint: str, directory: str, prefix: str) -> Iterator[tuple[str, Definition]]:
    for name in sorted(os.listdir(f"{mountpoint}/{directory}")):
        if name.endswith(".d"):
            yield prefix + name.removesuffix(".d"), Definition(mountpoint, f"{mountpoint}/{directory}/{name}")


def as_json(name: str, definition: Definition) -> dict[str, Any]:
    """A definition as ``mountctl agent list --json`` has it."""
    meta = json.loads(definition.read("meta.json") or "{}")
    return {
        "name": name,
        "exec": json.loads(definition.read("exec") or "[]"),
        "root": definition.read("root") or None,
        "cwd": definition.read("cwd") or "/",
        "owner": int(definition.read("owner")) if definition.read("owner") else None,
        "model": definition.read("model") or None,
        "mounts": [line.split("\t") for line in definition.read("mount").split("\n") if line],
        "adapter": meta.get("adapter"),
    }
