"""History cannot be changed, by nobody and in no way (spec 1.4)."""

import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mount.acting import message, opened, refused, write_once

A, B = message("a"), message("b")


def _truncated_open(log: Path) -> None:
    os.open(log, os.O_WRONLY | os.O_TRUNC)


def _truncated_for_reading(log: Path) -> None:
    os.open(log, os.O_RDONLY | os.O_TRUNC)


def _created(log: Path) -> None:
    os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)


def _truncated_to(size: int) -> Callable[[Path], None]:
    return lambda log: os.truncate(log, size)


def _ftruncated_to(size: int) -> Callable[[Path], None]:
    def act(log: Path) -> None:
        with opened(log, os.O_RDWR) as descriptor:
            os.ftruncate(descriptor, size)

    return act


CHANGES: dict[str, Callable[[Path], object]] = {
    "O_TRUNC": _truncated_open,
    "O_TRUNC, read-only": _truncated_for_reading,
    "O_CREAT and O_TRUNC": _created,
    "truncate to nothing": _truncated_to(0),
    "truncate, shorter": _truncated_to(3),
    "truncate, longer": _truncated_to(1000),
    "ftruncate, shorter": _ftruncated_to(3),
    "ftruncate, longer": _ftruncated_to(1000),
    "unlink": os.unlink,
    "link": lambda log: os.link(log, log.parent / "other"),
    "link outside the table": lambda log: os.link(log, log.parent.parent / "other"),
    "rename to another name": lambda log: os.rename(log, log.parent / "messages.old"),
    "rename to a backup": lambda log: os.rename(log, f"{log}~"),
    "rename onto the other log": lambda log: os.rename(log, log.parent / "events.jsonl"),
    "chmod": lambda log: os.chmod(log, 0o644),
    "chown": lambda log: os.chown(log, 1, 1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_history_cannot_be_changed(log: Path, name: str) -> None:
    write_once(log, A + B)
    before = log.stat()
    with refused(errno.EPERM):
        CHANGES[name](log)
    assert log.read_bytes() == A + B
    assert log.stat().st_mtime_ns == before.st_mtime_ns
    assert sorted(os.listdir(log.parent)) == sorted(set(os.listdir(log.parent)) - {"other", "messages.old"})


def test_an_empty_log_may_be_opened_with_o_trunc(log: Path) -> None:
    write_once(log, A, os.O_WRONLY | os.O_TRUNC)
    assert log.read_bytes() == A


def test_truncating_to_the_present_size_is_no_change(log: Path) -> None:
    write_once(log, A)
    os.truncate(log, len(A))
    with opened(log, os.O_WRONLY) as descriptor:
        os.ftruncate(descriptor, len(A))
    assert log.read_bytes() == A


def test_mapping_a_handle_that_is_open_for_writing_is_refused(log: Path) -> None:
    write_once(log, A)
    with opened(log, os.O_RDWR) as descriptor, refused(errno.ENODEV):
        mmap.mmap(descriptor, len(A), mmap.MAP_SHARED, mmap.PROT_READ)


def test_a_reader_may_map_the_log(log: Path) -> None:
    write_once(log, A)
    with opened(log, os.O_RDONLY) as descriptor, mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
        assert mapped[:] == A


def test_reading_through_a_write_only_handle_and_the_reverse(log: Path) -> None:
    with opened(log, os.O_WRONLY) as descriptor, refused(errno.EBADF):
        os.read(descriptor, 1)
    with opened(log, os.O_RDONLY) as descriptor, refused(errno.EBADF):
        os.write(descriptor, A)
