"""What a daemon is to serve, and the command line that carries it from ``mountctl mount`` to the daemon's process."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ctxfs import logs, stores
from ctxfs.agents.settings import Settings
from ctxfs.config import Schema


class Plan(NamedTuple):
    """Canonical paths, and the kernel's options; the log is stderr unless the daemon is detached.

    ``marks`` are those that the configuration defines (spec 2.3), ``agents`` is what agents get, ``metrics`` the file
    or socket that has figures.
    """

    mountpoint: str
    store: Path
    format: stores.Format
    options: frozenset[str]
    runtime: Path
    log_level: str = "info"
    log_file: Path | None = None
    marks: Mapping[str, Schema] = MappingProxyType({})
    agents: Settings = Settings()
    metrics: Path | None = None


def daemon_command(plan: Plan, ready: int) -> list[str]:
    """The argv of a daemon that serves ``plan`` and reports on the descriptor ``ready``."""
    command = [sys.executable, "-m", "ctxfs.daemon", plan.mountpoint, "--store", str(plan.store)]
    command += ["--format", plan.format, "--options", ",".join(sorted(plan.options)), "--runtime", str(plan.runtime)]
    command += ["--marks", json.dumps(dict(plan.marks)), "--log-level", plan.log_level]
    command += ["--agents", json.dumps(plan.agents), "--ready-fd", str(ready)]
    command += [] if plan.metrics is None else ["--metrics", str(plan.metrics)]
    return command if plan.log_file is None else [*command, "--log-file", str(plan.log_file)]


def parse_command(arguments: Sequence[str]) -> tuple[Plan, int | None]:
    """The inverse of ``daemon_command``, without the interpreter and the module: ``(plan, ready)``.

    Each option is called as its field, so that one that is left out has the field's default.
    """
    parser = argparse.ArgumentParser(
        prog="ctxfs.daemon",
        description="serves one ctxfs mount in the foreground",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("mountpoint")
    parser.add_argument("--store", required=True, type=Path)
    parser.add_argument("--format", required=True, choices=stores.FORMATS)
    parser.add_argument("--options", required=True, type=lambda text: frozenset(filter(None, text.split(","))))
    parser.add_argument("--runtime", required=True, type=Path)
    parser.add_argument("--log-level", choices=logs.LEVELS)
    parser.add_argument("--log-file", type=Path)
    parser.add_argument("--marks", type=json.loads)
    parser.add_argument("--agents", type=lambda text: Settings(*json.loads(text)))
    parser.add_argument("--metrics", type=Path)
    parser.add_argument("--ready-fd", type=int, default=None)
    chosen = vars(parser.parse_args(arguments))
    ready = chosen.pop("ready_fd")
    return Plan(**chosen), ready
