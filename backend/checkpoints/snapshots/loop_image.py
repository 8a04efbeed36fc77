"""A btrfs in a file, for machines that have none (notes 2.2): made, grown or shrunk, and mounted at the daemon's start.

The image is sparse: it takes what is in it. It stays mounted when the daemon ends.
"""

import logging
import os
import shutil
import subprocess
from pathlib import Path

from backend.checkpoints.errors import InternalError
from backend.durable import sync_directory
from backend.mountinfo import Mount, mount_at

IMAGE = "btrfs-data.img"

_GB = 1 << 30
_LEAST = 128 << 20

log = logging.getLogger("ctxfs.checkpoints")


def mount_image(image: Path, mountpoint: Path, size: int) -> None:
    """The image, of that many bytes, is mounted there afterwards (``InternalError``, ``OSError``)."""
    mounted = mount_at(str(mountpoint))
    if mounted is not None and not _is_of(mounted, image):
        raise InternalError(f"{mountpoint} is the mountpoint of something else: {mounted.source}")
    if mounted is None:
        if not image.exists():
            _make(image, size)
        mountpoint.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "btrfs", "-o", "loop", str(image), str(mountpoint))
    _resize(image, mountpoint, size)


def size_of_image(directory: Path, gigabytes: int, percent: float) -> int:
    """How many bytes an image in a directory gets: at most so much of its disk, and of what is free there."""
    disk = shutil.disk_usage(directory)
    wanted = min(gigabytes * _GB, int(disk.total * percent / 100))
    image = directory / IMAGE
    free = disk.free + (image.stat().st_blocks * 512 if image.exists() else 0)
    return max(_LEAST, wanted if wanted <= free else int(free * percent / 100)) // 4096 * 4096


def _make(image: Path, size: int) -> None:
    """Under another name until it is whole: an image that is there is one."""
    unfinished = image.with_suffix(".new")
    with unfinished.open("wb") as file:
        file.truncate(size)
    unfinished.chmod(0o600)
    _run("mkfs.btrfs", "-q", "-f", str(unfinished))
    unfinished.rename(image)
    sync_directory(image.parent)


def _resize(image: Path, mountpoint: Path, size: int) -> None:
    """Grows or shrinks it; one that holds too much to be shrunk stays as it is."""
    now = image.stat().st_size
    if size == now:
        return
    try:
        if size > now:
            os.truncate(image, size)
            _run("losetup", "-c", _device(mountpoint))
            _run("btrfs", "filesystem", "resize", "max", str(mountpoint))
        else:
            _run("btrfs", "filesystem", "resize", str(size), str(mountpoint))
            os.truncate(image, size)
            _run("losetup", "-c", _device(mountpoint))
    except InternalError as error:
        log.warning("the image stays at %d bytes: %s", now, error)


def _is_of(mounted: Mount, image: Path) -> bool:
    backing = Path("/sys/class/block") / Path(mounted.source).name / "loop/backing_file"
    try:
        return backing.read_text(encoding="utf-8").rstrip("\n") == str(image)
    except OSError:
        return False


def _device(mountpoint: Path) -> str:
    mounted = mount_at(str(mountpoint))
    if mounted is None:
        raise InternalError(f"{mountpoint} is not mounted any more")
    return mounted.source


def _run(*command: str) -> None:
    """One of the system's tools (``InternalError``: it is missing or failed)."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except FileNotFoundError:
        raise InternalError(f"{command[0]} is not installed (Debian: btrfs-progs, mount, util-linux)") from None
    if done.returncode != 0:
        raise InternalError(f"{' '.join(command)}: {done.stderr.strip()}")
