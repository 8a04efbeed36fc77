"""Shared spaces, through the mount: what ``mountctl shared create``, ``remove`` and ``list`` share (spec 4.6)."""

import argparse
import contextlib
import grp
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from backend.names import is_name
from mountctl.agent_definitions import add_mountpoint, mountpoint_of
from mountctl.cli import USAGE, Failure


class Shared(NamedTuple):
    """A shared space; ``group`` is None where the group has no name here."""

    name: str
    gid: int
    group: str | None
    mode: int


def add_space(parser: argparse.ArgumentParser) -> None:
    """NAME and ``--mountpoint``."""
    parser.add_argument("name", metavar="NAME")
    add_mountpoint(parser)


def path_of(arguments: argparse.Namespace) -> str:
    """The directory of the space that a command names (``Failure``: it cannot be one)."""
    if not is_name(arguments.name):
        raise Failure(f"{arguments.name!r} is no name of a shared space", USAGE)
    return f"{mountpoint_of(arguments)}/shared/{arguments.name}"


def gid_of(group: str) -> int:
    """The number of a group, by name or number (``Failure``: there is no such group)."""
    with contextlib.suppress(KeyError):
        return grp.getgrgid(int(group)).gr_gid if group.isdecimal() else grp.getgrnam(group).gr_gid
    raise Failure(f"no group {group!r}")


def spaces(mountpoint: str) -> Iterator[Shared]:
    """All of a mount, by name."""
    for name in sorted(os.listdir(f"{mountpoint}/shared")):
        status = os.stat(f"{mountpoint}/shared/{name}")
        yield Shared(name, status.st_gid, _group_name(status.st_gid), stat.S_IMODE(status.st_mode))


def _group_name(gid: int) -> str | None:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return None
