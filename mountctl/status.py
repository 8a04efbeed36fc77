"""``mountctl status``: every ctxfs mount and whether it works; never hangs on one (spec 4.6)."""

import argparse
import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from ctxfs import mounts
from ctxfs.control import Figures
from ctxfs.health import Health, examine
from mountctl.cli import OK, UNAVAILABLE
from mountctl.session_options import add_json
from mountctl.settings import config_of
from mountctl.text import bytes_text, counted, duration_text, escaped_name, styled

DESCRIPTION = "Shows every ctxfs mount, who serves it and what it has done. Exit code 69 if one is dead."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    check = partial(examine, runtime_dir=config_of(arguments).runtime_dir)
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(check, mounts.ctxfs_mounts()))
    if arguments.json:
        print(json.dumps({"mounts": [as_json(health) for health in found]}))
    else:
        print("\n\n".join(map(_paragraph, found)) or "no ctxfs mount")
    return UNAVAILABLE if any(health.state == "dead" for health in found) else OK


def as_json(health: Health) -> dict[str, Any]:
    """One mount in the shape of spec 4.6; what only its daemon knows is null, empty or 0 if that does not answer."""
    daemon, figures = health.daemon, health.figures
    return {
        "mountpoint": health.mount.mountpoint,
        "state": health.state,
        "store": health.mount.source,
        "pid": daemon.pid if daemon else None,
        "version": daemon.version if daemon else None,
        "uptime_s": max(0, int(time.time()) - daemon.since) if daemon and health.state != "dead" else None,
        "sessions": figures.sessions if figures else None,
        "requests": figures.requests if figures else {},
        "dropped_rests": figures.dropped_rests if figures else 0,
        "errors": figures.errors if figures else {},
        "last_error": figures.last_error if figures else None,
    }


_COLOURS = {"ok": "32", "stopped": "33", "dead": "31"}
_NEXT = {
    "stopped": "its daemon does not run: kill -CONT {pid}, or mountctl umount --lazy {mountpoint}",
    "dead": "its daemon is gone: mountctl mount {mountpoint} cleans up and mounts again, mountctl umount {mountpoint}",
}


def _paragraph(health: Health) -> str:
    facts = as_json(health)
    lines = [f"{escaped_name(facts['mountpoint'])}  {styled(health.state, _COLOURS[health.state])}"]
    lines.append(f"  store     {escaped_name(facts['store'])}")
    if facts["pid"] is not None:
        uptime = "" if facts["uptime_s"] is None else f", up {duration_text(facts['uptime_s'])}"
        lines.append(f"  daemon    pid {facts['pid']}, version {escaped_name(facts['version'])}{uptime}")
    if health.figures is not None:
        homes = counted(health.figures.homes, "home or shared space", "homes and shared spaces")
        lines.append(f"  sessions  {facts['sessions']} in {homes}")
        lines.append(f"  disk      {bytes_text(health.figures.bytes)}")
        lines.append(f"  requests  {_counts(facts['requests'])}")
        lines.append(f"  caches    {_caches(health.figures)}")
        lines.append(f"  errors    {_counts(facts['errors'])}; dropped rests {facts['dropped_rests']}")
        lines.append(f"  last      {escaped_name(facts['last_error'] or 'no error')}")
    if health.daemon is not None and health.daemon.log is not None:
        lines.append(f"  log       {escaped_name(health.daemon.log)}")
    if health.state in _NEXT:
        lines.append("  " + _NEXT[health.state].format(pid=facts["pid"], mountpoint=escaped_name(facts["mountpoint"])))
    return "\n".join(lines)


def _caches(figures: Figures) -> str:
    """Of the daemon: what the kernel has in its caches never comes here."""
    rates = [
        f"{escaped_name(name)} {hits} of {hits + figures.cache_misses.get(name, 0)} hits"
        for name, hits in sorted(figures.cache_hits.items())
    ]
    return ", ".join(rates) or "none"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{escaped_name(key)} {value}" for key, value in sorted(counts.items())) or "none"
