"""Closing removed files side by side: whoever closes the last descriptor of one waits until it is freed.

On some file systems that is a request to a disk or to a server for each file. With ``_thread``, since the import of
``threading`` takes as long as some dozens of removals; and not while others are removed, as threads that take turns in
the interpreter for that make it twice as dear.
"""

from __future__ import annotations

import _thread
import os

MAX_OPEN = 128

_AT_ONCE = 8


class Closer:
    """Closes descriptors in several threads: at its end, or as soon as it has as many as may be open."""

    def __init__(self) -> None:
        self._waiting: list[int] = []
        self._most = min(MAX_OPEN, os.sysconf("SC_OPEN_MAX") // 4)

    def __enter__(self) -> Closer:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_all()

    def close(self, descriptor: int) -> None:
        """Closes it, now or later."""
        self._waiting.append(descriptor)
        if len(self._waiting) >= self._most:
            self._close_all()

    def _close_all(self) -> None:
        own, *others = (self._waiting[start::_AT_ONCE] for start in range(_AT_ONCE))
        self._waiting = []
        ends = [_closed_aside(share) for share in others if share]
        _close(own)
        for ended in ends:
            ended.acquire()


def _closed_aside(descriptors: list[int]) -> _thread.LockType:
    """A lock that is free when another thread has closed them, or this one where there can be no more threads."""
    ended = _thread.allocate_lock()
    ended.acquire()

    def work() -> None:
        _close(descriptors)
        ended.release()

    try:
        _thread.start_new_thread(work, ())
    except RuntimeError:
        work()
    return ended


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        try:
            os.close(descriptor)
        except OSError:
            continue  # it is let go of all the same
