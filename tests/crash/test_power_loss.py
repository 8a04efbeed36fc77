"""Spec 1.3: what ``fsync`` or ``close`` returned for survives power loss.

The store is on a disk in a file; the file is copied at the moment the call returns, and the copy is mounted elsewhere.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.disks import MIB, copy, mount_on_disk, need_loop_devices
from tests.mount.acting import message, new_session, opened, write_once
from tests.mounting import RunningMount

pytestmark = pytest.mark.limit(600)


@pytest.fixture
def power() -> Iterator[tuple[RunningMount, Path]]:
    """A mount and the image of its store's disk."""
    need_loop_devices()
    with mount_on_disk(24 * MIB) as (mount, image):
        yield mount, image


def by_fsync(log: Path, line: bytes, cut: Callable[[], None]) -> None:
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
        os.write(descriptor, line)
        os.fsync(descriptor)
        cut()


def by_fdatasync(log: Path, line: bytes, cut: Callable[[], None]) -> None:
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
        os.write(descriptor, line)
        os.fdatasync(descriptor)
        cut()


def by_close(log: Path, line: bytes, cut: Callable[[], None]) -> None:
    write_once(log, line)
    cut()


def by_closing_a_copy(log: Path, line: bytes, cut: Callable[[], None]) -> None:
    with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
        os.write(descriptor, line)
        os.close(os.dup(descriptor))
        cut()


def by_fsync_of_a_reader(log: Path, line: bytes, cut: Callable[[], None]) -> None:
    """As ``sync FILE`` does."""
    with opened(log, os.O_WRONLY | os.O_APPEND) as writer, opened(log, os.O_RDONLY) as reader:
        os.write(writer, line)
        os.fsync(reader)
        cut()


def by_rename(log: Path, line: bytes, cut: Callable[[], None]) -> None:
    (log.parent / "tmp").write_bytes(log.read_bytes() + line)
    (log.parent / "tmp").rename(log)
    cut()


def by_close_with_a_rest(log: Path, line: bytes, cut: Callable[[], None]) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, line + line[:5])
    with pytest.raises(OSError, match="Invalid"):
        os.close(descriptor)
    cut()


WAYS = [
    by_fsync,
    by_fdatasync,
    by_close,
    by_closing_a_copy,
    by_fsync_of_a_reader,
    by_rename,
    by_close_with_a_rest,
]


def test_lines_are_there_after_power_loss(power: tuple[RunningMount, Path], tmp_path: Path) -> None:
    mount, image = power
    log = new_session(mount.path) / "messages.jsonl"
    expected: dict[str, bytes] = {}
    written = b""
    for way in WAYS:
        line = message(f"{way.__name__} " + "x" * 500)
        written += line
        way(log, line, lambda way=way: copy(image, tmp_path / way.__name__))  # type: ignore[misc]
        expected[way.__name__] = written
    found = {}
    for name in expected:
        with mount_on_disk(image=tmp_path / name) as (copied, _):
            found[name] = (copied.path / log.relative_to(mount.path)).read_bytes()
    assert found == expected


def test_values_snapshots_and_sessions_are_there_after_power_loss(
    power: tuple[RunningMount, Path], tmp_path: Path
) -> None:
    mount, image = power
    session = new_session(mount.path)
    second = new_session(mount.path)
    (session / "state").write_text("done\n")
    (session / "meta.json").write_text('{"client":"x"}\n')
    (session / "AGENTS.md").write_text("be kind\n")
    (session.parent / "index/by-hash/h").write_text(f"{session.name}\n")
    (session.parent / "index/current").write_text(f"{second.name}\n")
    copy(image, tmp_path / "image")
    names = ["state", "meta.json", "AGENTS.md", "../index/by-hash/h", "../index/current", "../index/list"]
    with mount_on_disk(image=tmp_path / "image") as (copied, _):
        there = copied.path / session.relative_to(mount.path)
        for name in names:
            assert (there / name).read_bytes() == (session / name).read_bytes()


def test_sync_of_a_directory_makes_a_new_session_survive(power: tuple[RunningMount, Path], tmp_path: Path) -> None:
    mount, image = power
    session = new_session(mount.path)
    subprocess.run(["sync", session.parent], check=True)
    copy(image, tmp_path / "image")
    with mount_on_disk(image=tmp_path / "image") as (copied, _):
        assert (copied.path / session.relative_to(mount.path) / "state").read_text() == "idle\n"
