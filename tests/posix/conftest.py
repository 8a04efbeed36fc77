"""A mount of ``DiskOperations`` alone, beside a plain directory on the same disk."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.loop_disk import loop_disk
from tests.posix.cases import OWNER
from tests.posix.serve import KEY


class Place(NamedTuple):
    """``mount`` shows ``disk`` (a directory below ``base``); ``plain`` is a directory like any other.

    ``server`` is the pid of the process that serves the mount.
    """

    base: Path
    disk: Path
    mount: Path
    plain: Path
    server: int


@contextmanager
def mounted(uid: int, size: int = 1 << 30) -> Iterator[Place]:
    """A disk of its own, so that a busy machine's journal does not hold the table up."""
    with loop_disk(size) as loop:
        top = loop.mountpoint
        top.parent.chmod(0o755)
        for directory in ("store", "mount", "plain"):
            (top / directory).mkdir(mode=0o755)
            os.chown(top / directory, uid, uid)
        base = top / "store" / "disk"
        with served(base, top / "mount", uid) as server:
            yield Place(base, base / KEY, top / "mount", top / "plain", server)


@contextmanager
def served(base: Path, mountpoint: Path, uid: int) -> Iterator[int]:
    """A mount as long as the block takes, and its server's pid."""
    command = [sys.executable, "-m", "tests.posix.serve", str(base), str(mountpoint), str(uid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        if server.stdout.readline() != "mounted\n":
            raise RuntimeError(server.stderr.read())
        try:
            yield server.pid
        finally:
            subprocess.run(["umount", str(mountpoint)], check=True)
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
