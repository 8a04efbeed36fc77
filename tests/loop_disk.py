"""A small ext4 of its own on a loop device, for tests of full disks and power cuts. Needs root."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="a loop device needs root")


class LoopDisk(NamedTuple):
    """``mountpoint`` is an empty directory of the disk; ``image`` holds what has reached the disk."""

    mountpoint: Path
    image: Path

    @contextmanager
    def after_power_cut(self) -> Iterator[Path]:
        """The directory as a machine finds it that lost power at this moment."""
        with _directory() as directory:
            image = directory / "image"
            shutil.copyfile(self.image, image)
            with _mounted(image, directory) as mountpoint:
                yield mountpoint


@contextmanager
def loop_disk(size: int) -> Iterator[LoopDisk]:
    """An ext4 of ``size`` bytes, its journal and tables included, gone afterwards."""
    with _directory() as directory:
        image = directory / "image"
        with image.open("wb") as file:
            file.truncate(size)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", image)
        with _mounted(image, directory) as mountpoint:
            shutil.rmtree(mountpoint / "lost+found")
            yield LoopDisk(mountpoint, image)


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ctxfs-loop-", dir="/var/tmp") as directory:
        yield Path(directory)


@contextmanager
def _mounted(image: Path, directory: Path) -> Iterator[Path]:
    mountpoint = directory / "mounted"
    mountpoint.mkdir()
    _run("mount", "-o", "loop", image, mountpoint)
    try:
        yield mountpoint
    finally:
        _run("umount", mountpoint)


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
