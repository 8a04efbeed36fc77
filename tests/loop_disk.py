"""A directory on a small ext4 of its own, for tests of a store on full disks and after power cuts."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.crash.disks import copy, disk, need_loop_devices
from tests.mounting import SCRATCH


class LoopDisk(NamedTuple):
    """``mountpoint`` is an empty directory of the disk; ``image`` holds what has reached the disk."""

    mountpoint: Path
    image: Path

    @contextmanager
    def after_power_cut(self) -> Iterator[Path]:
        """The directory as a machine finds it that lost power at this moment."""
        with _image() as image:
            copy(self.image, image)
            with _mounted(image) as mountpoint:
                yield mountpoint


@contextmanager
def loop_disk(size: int) -> Iterator[LoopDisk]:
    """An ext4 of ``size`` bytes, its journal and tables included, gone afterwards."""
    need_loop_devices()
    with _image() as image:
        with image.open("wb") as file:
            file.truncate(size)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], check=True)
        with _mounted(image) as mountpoint:
            (mountpoint / "lost+found").rmdir()
            yield LoopDisk(mountpoint, image)


@contextmanager
def _image() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ctxfs-test-", dir=SCRATCH) as directory:
        yield Path(directory) / "disk.img"


@contextmanager
def _mounted(image: Path) -> Iterator[Path]:
    mountpoint = image.parent / "mounted"
    mountpoint.mkdir()
    with disk(image, mountpoint):
        yield mountpoint
