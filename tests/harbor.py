"""The validator of the ``harbor`` package, asked in a Python of its own: it needs 3.12 or newer and pydantic.

Looked for in $CTXFS_HARBOR_PYTHON, in .venv-harbor (which ``./run test`` makes where there is such a Python), and among
the Pythons on the PATH. Nothing of ``harbor`` is imported but its trajectory models.
"""

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Sequence

from tests.mounting import PROJECT

_PROGRAM = """
import json, sys
from harbor.utils.trajectory_validator import TrajectoryValidator
validator = TrajectoryValidator()
for line in sys.stdin:
    validator.validate(json.loads(json.loads(line)))
    print(json.dumps(validator.errors), flush=True)
"""
_TIMEOUT_S = 90


@functools.cache
def python() -> str | None:
    """A Python in which the validator can be imported."""
    named = os.environ.get("CTXFS_HARBOR_PYTHON")
    found = [named] if named else [str(PROJECT / ".venv-harbor/bin/python")]
    found += filter(None, (shutil.which(f"python3.{minor}") for minor in range(12, 20)))
    return next((path for path in found if _has_validator(path)), None)


def _has_validator(path: str) -> bool:
    try:
        return _ran(path, "").returncode == 0
    except OSError:
        return False


def faults(documents: Sequence[bytes]) -> list[list[str]]:
    """What the validator says of each document."""
    path = python()
    assert path is not None
    ran = _ran(path, "".join(json.dumps(document.decode()) + "\n" for document in documents))
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def _ran(path: str, given: str) -> subprocess.CompletedProcess[str]:
    command = [path, "-I", "-c", _PROGRAM]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
