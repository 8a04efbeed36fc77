"""A mount of ``DiskOperations`` alone, beside a plain directory on the same disk."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.posix.cases import OWNER
from tests.posix.serve import KEY


class Place(NamedTuple):
    """``mount`` shows ``disk`` (a directory below ``base``); ``plain`` is a directory like any other."""

    base: Path
    disk: Path
    mount: Path
    plain: Path
    server: int


@contextmanager
def mounted(uid: int) -> Iterator[Place]:
    # Not pytest's own: other users must get through to it.
    with tempfile.TemporaryDirectory(prefix="ctxfs-posix-", dir="/var/tmp", ignore_cleanup_errors=True) as name:
        top = Path(name)
        top.chmod(0o755)
        for directory in ("store", "mount", "plain"):
            (top / directory).mkdir(mode=0o755)
            os.chown(top / directory, uid, uid)
        base = top / "store" / "disk"
        command = [sys.executable, "-m", "tests.posix.serve", str(base), str(top / "mount"), str(uid)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stderr is not None
            if server.stdout.readline() != "mounted\n":
                raise RuntimeError(server.stderr.read())
            try:
                yield Place(base, base / KEY, top / "mount", top / "plain", server.pid)
            finally:
                subprocess.run(["umount", str(top / "mount")], check=True)
                errors = server.stderr.read()
        assert (server.returncode, errors) == (0, "")


def needs_root_and_fuse() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if not Path("/dev/fuse").exists():
        pytest.skip("needs /dev/fuse")


@pytest.fixture(scope="session")
def place() -> Iterator[Place]:
    """A mount for everybody."""
    needs_root_and_fuse()
    with mounted(0) as found:
        yield found


@pytest.fixture(scope="session")
def own_place() -> Iterator[Place]:
    """A mount that an ordinary user made with fusermount3, and that nobody else can enter."""
    needs_root_and_fuse()
    if shutil.which("fusermount3") is None or os.stat("/dev/fuse").st_mode & 0o006 != 0o006:
        pytest.skip("users may not mount here")
    with mounted(OWNER) as found:
        yield found
