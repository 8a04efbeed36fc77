"""Closing removed files without waiting for it: whoever closes the last descriptor of one waits until it is freed.

On some file systems that is a request to a disk or to a server for each file. With ``_thread``, since the import of
``threading`` takes as long as some dozens of removals.
"""

from __future__ import annotations

import _thread
import os

MAX_OPEN = 40

_THREADS = 4
_GROUP = MAX_OPEN // (_THREADS + 1)  # what each thread closes; as many wait for the next one


class Closer:
    """Closes descriptors in threads of its own, all of them by its end, at most ``MAX_OPEN`` being open meanwhile."""

    def __init__(self) -> None:
        self._group: list[int] = []
        self._ends: list[_thread.LockType] = []

    def __enter__(self) -> Closer:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_group()
        for ended in self._ends:
            ended.acquire()

    def close(self, descriptor: int) -> None:
        """Closes it soon."""
        self._group.append(descriptor)
        if len(self._group) == _GROUP:
            self._close_group()

    def _close_group(self) -> None:
        if len(self._ends) == _THREADS:
            self._ends.pop(0).acquire()
        group, self._group = self._group, []
        ended = _thread.allocate_lock()
        ended.acquire()
        self._ends.append(ended)
        try:
            _thread.start_new_thread(_close, (group, ended))
        except RuntimeError:  # there can be no more threads
            _close(group, ended)


def _close(descriptors: list[int], ended: _thread.LockType) -> None:
    for descriptor in descriptors:
        try:
            os.close(descriptor)
        except OSError:
            continue  # it is let go of all the same
    ended.release()
