"""Runs ``mountctl`` and ``ctx`` as a shell would: as processes, with what they print and how they end."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from mountctl.cli import run
from mountctl.ctx import PROGRAM
from tests.mounting import PATIENCE_S, PROJECT


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
        timeout=PATIENCE_S,
        cwd="/",
        env={**environment, "PYTHONPATH": str(PROJECT)},
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def mountctl(*arguments: str, environment: Mapping[str, str] = os.environ) -> Ran:
    return run_program("mountctl.main", *arguments, environment=environment)


def ctx(*arguments: str, environment: Mapping[str, str] = os.environ) -> Ran:
    return run_program("mountctl.ctx", *arguments, environment=environment)


def in_process(root: Path, *arguments: str) -> Ran:
    """``ctx agent …`` without a new interpreter: what it imports is imported already, so it runs in a chroot too."""
    out, err = io.StringIO(), io.StringIO()
    before = os.environ.get("CTX_ROOT")
    os.environ["CTX_ROOT"] = str(root)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run("ctx", PROGRAM, ["agent", *arguments])
    finally:
        if before is None:
            del os.environ["CTX_ROOT"]
        else:
            os.environ["CTX_ROOT"] = before
    return Ran(code, out.getvalue(), err.getvalue())
