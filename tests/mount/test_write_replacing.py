"""Spec 1.4, Replacing: a log file written anew in place is an append of what goes beyond it, or refused."""

import errno
import os
from pathlib import Path

import pytest

from tests.mount.acting import entries, message, new_session, opened, refused, write_once
from tests.people import ALICE

A, B, C = message("a"), message("b"), message("c")
MIB = 1 << 20


@pytest.fixture
def log(session: Path) -> Path:
    """messages.jsonl with one message."""
    write_once(session / "messages.jsonl", A)
    return session / "messages.jsonl"


def replace(log: Path, content: bytes, piece: int = 8192, flags: int = os.O_WRONLY) -> None:
    """What vim does: open, ``ftruncate(fd, 0)``, write from the start, fsync, close."""
    with opened(log, flags) as descriptor:
        os.ftruncate(descriptor, 0)
        for start in range(0, len(content), piece):
            os.write(descriptor, content[start : start + piece])
        os.fsync(descriptor)


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND])
@pytest.mark.parametrize("piece", [1, 7, len(A), 8192])
def test_content_that_begins_with_the_history_appends_the_rest(log: Path, piece: int, flags: int) -> None:
    replace(log, A + B + C, piece, flags)
    assert log.read_bytes() == A + B + C
    assert entries(log.parent) == 3


def test_readers_see_the_history_until_fsync_or_close(log: Path) -> None:
    with opened(log, os.O_RDWR) as descriptor:
        os.ftruncate(descriptor, 0)
        assert (log.read_bytes(), log.stat().st_size, os.fstat(descriptor).st_size) == (A, len(A), len(A))
        os.write(descriptor, A + B)
        assert (log.read_bytes(), log.stat().st_size) == (A, len(A))
    assert log.read_bytes() == A + B


def test_a_truncation_with_nothing_written_is_no_change(log: Path) -> None:
    before = log.stat().st_mtime_ns
    with opened(log, os.O_RDWR) as descriptor:
        os.ftruncate(descriptor, 0)
        os.fsync(descriptor)
        os.close(os.dup(descriptor))
    assert (log.read_bytes(), log.stat().st_mtime_ns) == (A, before)


REFUSED: list[tuple[str, bytes, int]] = [
    ("other history", B + A, errno.EPERM),
    ("one byte changed", A.replace(b"a", b"x", 1) + B, errno.EPERM),
    ("less history", A[:-1], errno.EPERM),
    ("a line removed", B, errno.EPERM),
    ("an invalid line", A + b"garbage\n", errno.EINVAL),
    ("an unfinished line", A + B[:-1], errno.EINVAL),
    ("a blank line", A + b"\n", errno.EINVAL),
]


@pytest.mark.parametrize(("content", "number"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
@pytest.mark.parametrize("finish", ["fsync", "close"])
def test_anything_else_is_refused_by_fsync_or_close(log: Path, content: bytes, number: int, finish: str) -> None:
    descriptor = os.open(log, os.O_WRONLY)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, content)
    if finish == "fsync":
        with refused(number):
            os.fsync(descriptor)
    with refused(number):
        os.close(descriptor)
    assert log.read_bytes() == A
    assert entries(log.parent) == 1
    write_once(log, B)


def test_content_that_leaves_a_hole_is_refused(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, A)
    os.pwrite(descriptor, B, len(A) + 5)
    with refused(errno.EPERM):
        os.close(descriptor)
    assert log.read_bytes() == A


def test_a_refused_replacement_may_be_tried_again(log: Path) -> None:
    with opened(log, os.O_WRONLY) as descriptor:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, B)
        with refused(errno.EPERM):
            os.fsync(descriptor)
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, A + B)
    assert log.read_bytes() == A + B


def test_after_a_replacement_the_handle_appends_again(log: Path) -> None:
    with opened(log, os.O_WRONLY) as descriptor:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, A + B)
        os.fsync(descriptor)
        os.write(descriptor, C)
        assert log.read_bytes() == A + B + C
        with refused(errno.EPERM):
            os.pwrite(descriptor, C, 0)


def test_a_line_that_was_appended_meanwhile_must_be_in_it(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, A + C)
    write_once(log, B)
    with refused(errno.EPERM):
        os.close(descriptor)
    assert log.read_bytes() == A + B


def test_a_line_that_was_appended_meanwhile_and_is_in_it_is_not_appended_twice(log: Path) -> None:
    with opened(log, os.O_WRONLY) as descriptor:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, A + B + C)
        write_once(log, B)
    assert log.read_bytes() == A + B + C
    assert entries(log.parent) == 3


def test_a_replacement_of_which_a_part_was_refused_is_refused(ctx: Path) -> None:
    """64 MiB beyond the history fit; what goes beyond that is refused, and then nothing of it counts."""
    log = new_session(ctx, ALICE) / "messages.jsonl"
    block = message("x" * 1000) * 1000

    def replace_by_too_much() -> None:
        write_once(log, A)
        descriptor = os.open(log, os.O_WRONLY)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, A)
        with refused(errno.ENOSPC):
            for _ in range(70):
                os.write(descriptor, block[:MIB])
        with refused(errno.EPERM):
            os.close(descriptor)

    ALICE.does(replace_by_too_much)
    assert ALICE.does(log.read_bytes) == A
    ALICE.does((log.parent / "tmp").write_bytes, b"x" * MIB)


def test_a_history_larger_than_the_budget_is_replaced_in_place(ctx: Path) -> None:
    """Only what goes beyond the history is held, so 64 MiB a uid are enough."""
    session = new_session(ctx, ALICE)
    log = session / "messages.jsonl"
    chunk = message("x" * 1000) * 1000

    def grow_and_replace() -> int:
        with opened(log, os.O_WRONLY | os.O_APPEND) as descriptor:
            for _ in range(66):
                sent = 0
                while sent < len(chunk):
                    sent += os.write(descriptor, chunk[sent:])
        with opened(log, os.O_WRONLY) as descriptor, log.open("rb") as old:
            os.ftruncate(descriptor, 0)
            while piece := old.read(MIB):
                os.write(descriptor, piece)
            os.write(descriptor, A)
        with log.open("rb") as file:
            file.seek(-len(A), os.SEEK_END)
            assert file.read() == A
        return log.stat().st_size

    assert ALICE.does(grow_and_replace) == 66 * len(chunk) + len(A)
