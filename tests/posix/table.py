"""The table of POSIX cases, and how it runs: ``run_table(directory, uid)`` in a directory of any file system.

Running the table on the disk itself and in a mount, and comparing, is the test (spec 1.8). One process runs the whole
table, taking on the user's effective ids case by case: ``python -m tests.posix.cases each DIRECTORY UID`` prints JSON.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.posix.world import LIMIT_SECONDS, NotApplicable, World, become, confine, outcome

Case = Callable[[World], Any]
CASES: dict[str, Case] = {}
F = TypeVar("F", bound=Callable[..., Any])


def case(name: str) -> Callable[[F], F]:
    """Adds a function as the case ``name``, "group: what it shows"."""

    def add(function: F) -> F:
        add_case(name, function)
        return function

    return add


def add_case(name: str, function: Case) -> None:
    if name in CASES:
        raise ValueError(f"two cases are called {name!r}")
    CASES[name] = function


def rows(name: str, table: dict[str, Any]) -> Callable[[F], F]:
    """Adds one case for each row: ``function(world, row)``."""

    def add(function: F) -> F:
        for title, row in table.items():
            add_case(f"{name}: {title}", partial(_on_row, function, row))
        return function

    return add


def _on_row(function: Callable[[World, Any], Any], row: Any, world: World) -> Any:
    return function(world, row)


def run_table(directory: Path, uid: int) -> dict[str, Any]:
    """The result of every case, by name, acting in ``directory`` as ``uid``; needs root.

    What the cases leave behind (``table-UID`` in ``directory``) is the caller's to remove.
    """
    return _run([], "each", directory, uid)


def run_confined_table(directory: Path, uid: int, server: int) -> dict[str, Any]:
    """The same where root has no business: other users' parts are "not applicable".

    ``directory`` is as the process ``server`` sees it (a user's own mount).
    """
    return _run(namespace_of(server), "confined", directory, uid)


def namespace_of(process: int) -> list[str]:
    """What to put before a command that is to see the mounts which ``process`` sees."""
    return ["nsenter", f"--target={process}", "--mount", "--root", f"--wd={Path.cwd()}"]


def _run(prefix: list[str], how: str, directory: Path, uid: int) -> dict[str, Any]:
    command = [*prefix, sys.executable, "-m", "tests.posix.cases", how, str(directory), str(uid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    results: dict[str, Any] = json.loads(done.stdout)
    return results


def _expired(signum: int, frame: object) -> None:
    raise TimeoutError("the case took too long")


def _run_case(function: Case, uid: int) -> Any:
    become(uid)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS)
    try:
        return outcome(function, World(uid))
    except NotApplicable:
        return "not applicable"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        become(os.getuid())


def main(how: str, directory: str, uid: str) -> None:
    if how == "confined":
        confine(int(uid))
    signal.signal(signal.SIGALRM, _expired)
    os.umask(0o022)
    top = Path(directory) / f"table-{uid}"
    top.mkdir(mode=0o755)
    results = {}
    for number, (name, function) in enumerate(CASES.items()):
        own = top / str(number)
        own.mkdir(mode=0o755)
        os.chown(own, int(uid), int(uid))
        os.chdir(own)
        results[name] = _run_case(function, int(uid))
    json.dump(results, sys.stdout)
