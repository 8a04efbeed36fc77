"""What kernel and server of ordinary directories do together: descriptors, a full disk, many at once, remounts."""

import errno
import multiprocessing
import os
import random
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from ctxfs.files.passthrough_tree import DIRECTORY_LIMIT
from tests.posix.conftest import AS_ROOT, Place, mounted, served
from tests.posix.world import confine

pytestmark = AS_ROOT
OTHER_DESCRIPTORS = 32
"""What the server has open beside directories: /dev/fuse, its pipes, its threads' own."""


def descriptors(place: Place) -> int:
    return len(os.listdir(f"/proc/{place.server}/fd"))


@pytest.fixture
def directory(place: Place, request: pytest.FixtureRequest) -> Path:
    found = place.mount / str(request.node.name)
    found.mkdir()
    return found


def test_descriptors_are_bounded_whatever_is_known(place: Place, directory: Path) -> None:
    for number in range(2 * DIRECTORY_LIMIT):
        (directory / str(number)).mkdir()
        (directory / str(number) / "file").touch()
        (directory / str(number) / "file").rename(directory / str(number) / "renamed")
    assert descriptors(place) <= DIRECTORY_LIMIT + OTHER_DESCRIPTORS


def test_nameless_files_give_their_descriptors_back(place: Place, directory: Path) -> None:
    for _ in range(DIRECTORY_LIMIT + OTHER_DESCRIPTORS + 1):
        with (directory / "file").open("wb") as file:
            (directory / "file").unlink()
            file.write(b"unseen")
    assert descriptors(place) <= DIRECTORY_LIMIT + OTHER_DESCRIPTORS


def test_a_mount_shows_what_is_on_the_disk(place: Place, directory: Path) -> None:
    (directory / "file").write_bytes(b"content")
    on_disk = place.disk / directory.name / "file"
    assert on_disk.read_bytes() == b"content"
    assert (directory / "file").stat()[4:] == on_disk.stat()[4:]


def churn(where: str, seed: int) -> list[str]:
    """Makes, renames and removes on the same few names as others do at the same time; unusual errors."""
    errors = []
    chance = random.Random(seed)
    names = [f"{where}/{name}" for name in ("a", "b", "c", "a/x", "b/x", "a/y", "b/y")]
    usual = (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.EPERM)
    actions = (
        lambda: os.mkdir(chance.choice(names)),
        lambda: os.rmdir(chance.choice(names)),
        lambda: os.unlink(chance.choice(names)),
        lambda: os.rename(chance.choice(names), chance.choice(names)),
        lambda: os.link(chance.choice(names), chance.choice(names)),
        lambda: Path(chance.choice(names)).write_bytes(b"x" * 100),
        lambda: Path(chance.choice(names)).read_bytes(),
        lambda: os.listdir(chance.choice(names)),
        lambda: os.stat(chance.choice(names)),
    )
    for _ in range(600):
        try:
            chance.choice(actions)()
        except OSError as error:
            if error.errno not in usual:
                errors.append(str(error))
    return errors


def test_many_at_once_get_the_usual_answers_only(place: Place, directory: Path) -> None:
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert [*pool.map(churn, [str(directory)] * 4, range(4))] == [[]] * 4
    shown = {str(path.relative_to(directory)): path.lstat()[:1] for path in directory.rglob("*")}
    on_disk = place.disk / directory.name
    assert shown == {str(path.relative_to(on_disk)): path.lstat()[:1] for path in on_disk.rglob("*")}


def test_a_link_swapped_for_a_directory_shows_no_more_than_the_rights(place: Place, directory: Path) -> None:
    """A user who swaps a directory of his for a link to another's, while he opens through it, gets his own file."""
    for name, uid, mode in (("mine", 1001, 0o755), ("theirs", 1002, 0o700)):
        (directory / name).mkdir()
        (directory / name / "file").write_text(name)
        os.chown(directory / name, uid, uid)
        (directory / name).chmod(mode)
    os.chown(directory, 1001, 1001)
    (directory / "link").symlink_to("theirs")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(directory / "mine", directory / "away")
            os.rename(directory / "link", directory / "mine")
            os.rename(directory / "mine", directory / "link")
            os.rename(directory / "away", directory / "mine")

    pid = os.fork()
    if pid == 0:
        confine(1001)
        seen = set()
        for _ in range(2000):
            with suppress(FileNotFoundError, PermissionError):
                seen.add((directory / "mine" / "file").read_text())
        os._exit(0 if seen <= {"mine"} else 1)
    swapping = threading.Thread(target=swap)
    swapping.start()
    _, status = os.waitpid(pid, 0)
    stop.set()
    swapping.join()
    assert os.waitstatus_to_exitcode(status) == 0


def fill(file: IO[bytes]) -> None:
    for size in (100_000, 4096):
        with pytest.raises(OSError) as caught:
            while True:
                file.write(b"x" * size)
        assert caught.value.errno == errno.ENOSPC


def test_a_full_disk_says_so_and_recovers(fuse_device: None) -> None:
    with mounted(0, 16 << 20) as place, (place.mount / "big").open("wb", buffering=0) as big:
        fill(big)
        with pytest.raises(OSError) as caught:
            (place.mount / "file").write_bytes(b"x" * 10_000)
        assert caught.value.errno == errno.ENOSPC
        assert (place.mount / "file").read_bytes() == b""
        big.truncate(0)
        (place.mount / "file").write_bytes(b"x" * 10_000)
        assert (place.mount / "file").read_bytes() == b"x" * 10_000


def test_everything_is_there_after_a_remount(place: Place) -> None:
    again = place.plain.parent / "again"
    base, mountpoint = again / "disk", again / "mount"
    mountpoint.mkdir(parents=True)

    def shown() -> dict[str, list[int]]:
        found = {path.name: path.lstat() for path in mountpoint.iterdir()}
        return {name: [at.st_mode, at.st_ino, at.st_nlink, at.st_size, at.st_mtime_ns] for name, at in found.items()}

    with served(base, mountpoint, 0):
        (mountpoint / "file").write_bytes(b"content")
        os.link(mountpoint / "file", mountpoint / "linked")
        os.symlink("file", mountpoint / "link")
        os.mkfifo(mountpoint / "fifo")
        before = shown()
    with served(base, mountpoint, 0):
        assert shown() == before
