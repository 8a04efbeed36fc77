"""AGENTS.md and SKILLS.md: written whole or not at all (spec 1.4)."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from ctxfs.budget import USER_LIMIT
from tests.mount.acting import entries, opened, refused


@pytest.mark.parametrize("name", ["AGENTS.md", "SKILLS.md"])
def test_a_snapshot_takes_effect_at_flush(session: Path, name: str) -> None:
    path = session / name
    path.write_text("old\n")
    with opened(path, os.O_WRONLY | os.O_TRUNC) as descriptor:
        os.write(descriptor, b"new, ")
        os.write(descriptor, b"longer\n")
        assert path.read_text() == "old\n"
        os.fsync(descriptor)
        assert path.read_text() == "new, longer\n"
    assert entries(session) == 0


@pytest.mark.parametrize("name", ["AGENTS.md", "SKILLS.md"])
def test_a_snapshot_is_made_replaced_and_removed(session: Path, name: str) -> None:
    path = session / name
    assert not path.exists()
    path.touch()
    assert path.read_text() == ""
    path.write_text("one\n")
    with path.open("a") as file:
        file.write("two\n")
    assert path.read_text() == "one\ntwo\n"
    path.unlink()
    assert not path.exists()
    assert name not in os.listdir(session)


def test_a_shell_redirection_never_shows_a_snapshot_empty(session: Path) -> None:
    path = session / "AGENTS.md"
    path.write_text("old\n")
    subprocess.run(["sh", "-c", f"(cat {path}; echo new) > {session}/SKILLS.md"], check=True)
    assert (session / "SKILLS.md").read_text() == "old\nnew\n"
    subprocess.run(["sh", "-c", f"exec > {path}; cat {path} >&2"], check=True, stderr=subprocess.DEVNULL)
    assert path.read_text() == "old\n"


def test_a_snapshot_has_at_most_1_mib_and_is_utf_8(session: Path) -> None:
    path = session / "AGENTS.md"
    path.write_bytes(b"x" * (1 << 20))
    with refused(errno.EFBIG):
        path.write_bytes(b"y" * ((1 << 20) + 1))
    with refused(errno.EFBIG):
        os.truncate(path, 1 << 40)
    with refused(errno.EINVAL):
        path.write_bytes(b"\xff")
    assert path.read_bytes() == b"x" * (1 << 20)


def test_a_snapshot_whose_writer_ran_out_of_memory_replaces_nothing(session: Path) -> None:
    path = session / "AGENTS.md"
    path.write_text("old\n")
    (session / ".filler").write_bytes(b"x" * (USER_LIMIT - (512 << 10)))
    with opened(path, os.O_WRONLY | os.O_TRUNC) as descriptor:
        os.write(descriptor, b"y" * (400 << 10))
        with refused(errno.ENOSPC):
            os.write(descriptor, b"y" * (400 << 10))
    (session / ".filler").unlink()
    assert path.read_text() == "old\n"


def test_the_same_snapshot_is_no_change(session: Path) -> None:
    path = session / "AGENTS.md"
    path.write_text("same\n")
    before = path.stat().st_mtime_ns
    path.write_text("same\n")
    assert path.stat().st_mtime_ns == before


def test_a_refused_new_snapshot_leaves_none(session: Path) -> None:
    with refused(errno.EINVAL):
        (session / "AGENTS.md").write_bytes(b"\xff")
    assert not (session / "AGENTS.md").exists()
