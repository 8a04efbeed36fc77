"""Closing removed files side by side (spec 5): how many are open, and that all are closed in the end."""

import _thread
import os
import threading
from typing import NoReturn

import pytest

from backend.envelopes import closing
from backend.envelopes.closing import MAX_OPEN, Closer

LIMIT_S = 60


class Disk:
    """Stands for ``os``: a close waits until ``at_once`` do, and each other one fails."""

    def __init__(self, at_once: int = 1, may_be_open: int = 1024) -> None:
        self.closed: list[int] = []
        self._together = threading.Barrier(at_once)
        self._may_be_open = may_be_open

    def close(self, descriptor: int) -> None:
        self._together.wait(LIMIT_S)
        self.closed.append(descriptor)
        if descriptor % 2:
            raise OSError(5, "Input/output error")

    def sysconf(self, name: str) -> int:
        assert name == "SC_OPEN_MAX"
        return self._may_be_open


@pytest.mark.parametrize("count", [0, 1, MAX_OPEN, 3 * MAX_OPEN])
def test_all_are_closed_in_the_end(count: int) -> None:
    pipe = os.pipe()
    before = len(os.listdir("/proc/self/fd"))
    with Closer() as closer:
        for _ in range(count):
            closer.close(os.dup(pipe[0]))
    assert len(os.listdir("/proc/self/fd")) == before
    for end in pipe:
        os.close(end)


def test_eight_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(at_once=8)
    monkeypatch.setattr(closing, "os", disk)
    with Closer() as closer:
        for number in range(32):
            closer.close(number)
        assert disk.closed == []
    assert sorted(disk.closed) == list(range(32))  # also where closing fails


def test_a_lone_one_is_closed_in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "os", disk := Disk())
    monkeypatch.setattr(_thread, "start_new_thread", None)
    with Closer() as closer:
        closer.close(1)
    assert disk.closed == [1]


@pytest.mark.parametrize(("may_be_open", "most"), [(1024, MAX_OPEN), (48, 12), (3, 1)])
def test_no_more_are_open_than_a_part_of_what_may_be(
    monkeypatch: pytest.MonkeyPatch, may_be_open: int, most: int
) -> None:
    disk = Disk(may_be_open=may_be_open)
    monkeypatch.setattr(closing, "os", disk)
    with Closer() as closer:
        for number in range(1, 2 * MAX_OPEN):
            closer.close(number)
            assert number - len(disk.closed) == number % most


def test_where_there_can_be_no_more_threads_all_are_closed_in_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(closing, "os", disk := Disk())
    monkeypatch.setattr(_thread, "start_new_thread", refused)
    with Closer() as closer:
        for number in range(100):
            closer.close(number)
    assert sorted(disk.closed) == list(range(100))
