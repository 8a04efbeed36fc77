"""Places for commands to mount: below /var/tmp, with runtime files of their own, cleaned up whatever a test did."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxfs import mounts, probe
from ctxfs.health import examine
from tests.commands.running import Ran, mountctl
from tests.mounting import SCRATCH, wait_until


class Place:
    """A mountpoint and a store that are not there yet, and commands that know them."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.mountpoint = base / "ctx"
        self.store = base / "store"
        self.runtime = base / "run"
        self.environment = {
            **os.environ,
            "CTXFS_RUNTIME_DIR": str(self.runtime),
            "CTX_ROOT": str(self.mountpoint),
            "XDG_CONFIG_HOME": str(base / "config"),
        }

    def mountctl(self, *arguments: str) -> Ran:
        return mountctl(*arguments, environment=self.environment)

    def mount(self, *options: str) -> Ran:
        """``mountctl mount`` of this place."""
        return self.mountctl("mount", str(self.mountpoint), "--store", str(self.store), *options)

    def umount(self, *options: str) -> Ran:
        return self.mountctl("umount", str(self.mountpoint), *options)

    def mounted(self) -> mounts.Mount | None:
        return mounts.mount_at(str(self.mountpoint))

    def daemon(self) -> int:
        """The pid of the daemon that serves the mountpoint."""
        mount = self.mounted()
        assert mount is not None
        state = examine(mount, self.runtime).daemon
        assert state is not None
        return state.pid


@pytest.fixture
def place(fuse_device: None) -> Iterator[Place]:
    base = Path(tempfile.mkdtemp(prefix="ctxfs-test-", dir=SCRATCH))
    base.chmod(0o755)
    yield Place(base)
    for mount in reversed(mounts.mounts()):
        if mount.mountpoint.startswith(f"{base}/"):
            _end(mount, base / "run")
    shutil.rmtree(base)


def _end(mount: mounts.Mount, runtime: Path) -> None:
    daemon = examine(mount, runtime).daemon if mount.fstype == mounts.FSTYPE else None
    with contextlib.suppress(OSError):
        if daemon is not None:
            os.kill(daemon.pid, 9)
        if mount.fstype.startswith("fuse"):
            probe.abort(mount.device[1])
    probe.umount(mount.mountpoint, probe.MNT_DETACH)
    wait_until(lambda: not mounts.is_mounted(mount), "the unmount")
