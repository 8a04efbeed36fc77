"""A mount of ``DiskOperations`` alone, beside a plain directory on the same disk."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.loop_disk import loop_disk
from tests.own_mounts import in_own_mounts
from tests.posix.cases import OWNER
from tests.posix.serve import KEY
from tests.posix.table import namespace_of

# In a mount namespace of its own, where /dev/fuse is everyone's, as it is where users may mount at all.
OWN_DEVICE = ("sh", "-c", 'mknod "$0" c 10 229 && chmod 666 "$0" && mount --bind "$0" /dev/fuse && exec "$@"')


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="acts as several users")


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
        # As disks usually are: the table looks at times of access.
        subprocess.run(["mount", "-o", "remount,atime,relatime", str(top)], check=True)
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
    if uid != 0:
        command = in_own_mounts(mountpoint.parent, *OWN_DEVICE, str(mountpoint.parent / "fuse"), *command)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        if server.stdout.readline() != "mounted\n":
            raise RuntimeError(server.stderr.read())
        try:
            yield server.pid
            subprocess.run([*namespace_of(server.pid), "umount", str(mountpoint)], check=True)
        except BaseException:
            # Or leaving this block would wait for it.
            server.kill()
            raise
        errors = server.stderr.read()
    assert (server.returncode, errors) == (0, "")


@pytest.fixture(scope="session")
def place(fuse_device: None) -> Iterator[Place]:
    """A mount for everybody."""
    with mounted(0) as found:
        yield found


@pytest.fixture(scope="session")
def own_place(fuse_device: None) -> Iterator[Place]:
    """A mount that an ordinary user made with fusermount3, and that nobody else can enter."""
    with mounted(OWNER) as found:
        yield found
