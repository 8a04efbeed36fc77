"""``./run``: what fails ends it with a reason, and is not taken for done the next time."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.mounting import PROJECT
from tests.own_mounts import in_own_mounts

LENT = ("cat", "chmod", "cksum", "cp", "dirname", "env", "id", "mkdir", "sh")
STANDING_IN = {
    "dpkg-query": "printf installed",
    "python3": 'case "$*" in *"-m venv"*) mkdir -p .venv/bin && cp bin/no-network .venv/bin/python ;; esac',
    "no-network": "echo no network >&2; exit 9",
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone that nothing was set up in; ``bin`` is all that its ``./run`` finds, sudo not among it."""
    for name in ("run", "requirements-build.lock", "requirements.lock", "pyproject.toml"):
        shutil.copy2(PROJECT / name, tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in LENT:
        (programs / name).symlink_to(str(shutil.which(name)))
    for name, script in STANDING_IN.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    for directory in (tmp_path, *tmp_path.parents[:2]):
        directory.chmod(0o755)  # another uid is to reach it
    return tmp_path


def run(clone: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": str(clone / "bin"), "HOME": str(clone), "PYTHONPATH": str(PROJECT)}
    return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("command", ["docs", "lint", "test"])
def test_an_environment_that_cannot_be_made_is_not_one(clone: Path, command: str) -> None:
    for _ in range(2):
        ran = run(clone, "./run", command)
        assert (ran.returncode, ran.stdout) == (9, "")
        assert ran.stderr.splitlines() == ["making .venv (once, about a minute)", "no network"]
    assert not (clone / ".venv/made-from").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a /dev of its own")
def test_whoever_cannot_load_the_fuse_module_is_told_that_it_is_missing(clone: Path) -> None:
    script = f"""
        mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3
        PATH={clone}/bin exec {shutil.which("setpriv")} --reuid 1000 --clear-groups ./run up
    """
    ran = run(
        clone, *in_own_mounts(clone, str(shutil.which("sh")), "-c", f"export PATH={os.environ['PATH']}\n{script}")
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("run: /dev/fuse is missing")
