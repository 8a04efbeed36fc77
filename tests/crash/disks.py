"""Small disks of their own for tests: ext4 in a file, which can be copied as a power cut would leave it, or be full."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import SCRATCH, RunningMount

MIB = 1 << 20
# Nothing reaches the disk on its own while a test runs: only what was synced is in the image.
_LAZY = "loop,commit=300,noatime"


def need_loop_devices() -> None:
    """Skips where no loop device can be had (no root, or a container without them)."""
    if os.geteuid() != 0 or not os.path.exists("/dev/loop-control") or shutil.which("mkfs.ext4") is None:
        pytest.skip("needs root, loop devices and mkfs.ext4")


@contextlib.contextmanager
def disk(image: Path, directory: Path) -> Iterator[None]:
    """The file system in ``image``, mounted."""
    subprocess.run(["mount", "-o", _LAZY, image, directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", directory], check=True)


@contextlib.contextmanager
def mount_on_disk(size: int | None = None, *, image: Path | None = None) -> Iterator[tuple[RunningMount, Path]]:
    """A mount whose store is on a disk of its own: a new one of ``size`` bytes, or a copy of ``image``."""
    base = Path(tempfile.mkdtemp(prefix="ctxfs-test-", dir=SCRATCH))
    base.chmod(0o755)
    mount = RunningMount(base, "sqlite", frozenset())
    own = base / "disk.img"
    try:
        if image is not None:
            copy(image, own)
        else:
            with own.open("wb") as file:
                file.truncate(size or 0)
            subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", own], check=True)
        with disk(own, mount.store):
            try:
                mount.start()
                yield mount, own
                assert mount.stop() == 0, mount.log.read_text()
                assert mount.complaints() == []
            finally:
                mount.unmount()
    finally:
        shutil.rmtree(base)


def copy(image: Path, target: Path) -> None:
    """What the disk holds at this moment."""
    subprocess.run(["cp", "--sparse=always", image, target], check=True)
