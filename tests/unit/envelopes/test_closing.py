"""Closing removed files aside (spec 5): how many are open, who waits for whom, and that all are closed in the end."""

import _thread
import os
import threading
from collections.abc import Iterator
from typing import NoReturn

import pytest

from backend.envelopes import closing
from backend.envelopes.closing import MAX_OPEN, Closer

LIMIT_S = 60
MANY = 3 * MAX_OPEN


class Disk:
    """Stands for ``os``: nothing is closed before ``ready``, and ``busy`` is released for each that waits."""

    def __init__(self) -> None:
        self.busy = threading.Semaphore(0)
        self.ready = threading.Event()
        self.closed: list[int] = []

    def close(self, descriptor: int) -> None:
        self.busy.release()
        assert self.ready.wait(LIMIT_S)
        self.closed.append(descriptor)
        if descriptor % 2:
            raise OSError(5, "Input/output error")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk()
    monkeypatch.setattr(closing, "os", made)
    yield made
    made.ready.set()


@pytest.mark.parametrize("count", [0, 1, MAX_OPEN, MANY])
def test_all_are_closed_in_the_end(count: int) -> None:
    pipe = os.pipe()
    before = len(os.listdir("/proc/self/fd"))
    with Closer() as closer:
        for _ in range(count):
            closer.close(os.dup(pipe[0]))
    assert len(os.listdir("/proc/self/fd")) == before
    for end in pipe:
        os.close(end)


def test_a_few_are_closed_at_once_and_the_rest_waits_for_them(disk: Disk) -> None:
    most_open = list[int]()

    def work() -> None:
        with Closer() as closer:
            for number in range(MANY):
                closer.close(number)
                most_open.append(number + 1 - len(disk.closed))

    worker = threading.Thread(target=work)
    worker.start()
    for _ in range(4):
        assert disk.busy.acquire(timeout=LIMIT_S)
    disk.ready.set()
    worker.join(LIMIT_S)
    assert sorted(disk.closed) == list(range(MANY))  # also where closing failed
    assert max(most_open) <= MAX_OPEN


def test_who_closes_few_does_not_wait_before_the_end(disk: Disk) -> None:
    with Closer() as closer:
        for number in range(MAX_OPEN - 1):
            closer.close(number)
        assert disk.closed == []
        disk.ready.set()
    assert sorted(disk.closed) == list(range(MAX_OPEN - 1))


def test_where_there_can_be_no_more_threads_they_are_closed_at_once(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refused)
    disk.ready.set()
    with Closer() as closer:
        for number in range(MANY):
            closer.close(number)
    assert disk.closed == list(range(MANY))
