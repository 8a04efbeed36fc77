"""The machine that figures come from, in one paragraph."""

import datetime
import os
import platform
import sqlite3
from importlib.metadata import version
from pathlib import Path


def described() -> str:
    """Date, load, CPU, memory, kernel and versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"Measured on {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, load {os.getloadavg()[0]:.1f} before it"
        f" began: {len(os.sched_getaffinity(0))} CPUs ({_model()}), {memory:.0f} GiB, Linux {platform.release()},"
        f" Python {platform.python_version()}, pyfuse3 {version('pyfuse3')}, SQLite {sqlite3.sqlite_version}."
    )


def _model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
