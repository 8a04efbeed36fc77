"""Runs ``mountctl`` and ``ctx`` as a shell would: as processes, with what they print and how they end."""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

from tests.mounting import PROJECT

TIMEOUT_S = 30.0


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def run_program(module: str, *arguments: str, environment: Mapping[str, str]) -> Ran:
    """Runs a module of this project, found wherever the working directory is."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=TIMEOUT_S,
        cwd="/",
        env={**environment, "PYTHONPATH": str(PROJECT)},
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def mountctl(*arguments: str, environment: Mapping[str, str] = os.environ) -> Ran:
    return run_program("mountctl.main", *arguments, environment=environment)


def ctx(*arguments: str, environment: Mapping[str, str] = os.environ) -> Ran:
    return run_program("mountctl.ctx", *arguments, environment=environment)
