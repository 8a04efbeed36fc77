"""Calls side by side, for those that wait each time: for a disk, or for the server of a home directory.

With ``_thread``, since the import of ``threading`` takes as long as some dozens of such calls.
"""

from __future__ import annotations

import _thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    Item = TypeVar("Item")
    Result = TypeVar("Result")


def together(call: Callable[[Item], Result], items: Sequence[Item], at_once: int) -> list[Result]:
    """What ``call`` gives for each item, in order, from up to ``at_once`` threads; one item is done in this thread.

    What a call raises is raised once all have ended.
    """
    found: list[Any] = [None] * len(items)
    failures: list[BaseException] = []
    waiting = iter(range(len(items)))  # which gives each number to one thread

    def work() -> None:
        try:
            for number in waiting:
                found[number] = call(items[number])
        except BaseException as error:
            failures.append(error)

    others = [_started(work) for _ in range(min(at_once, len(items)) - 1)]
    work()
    for ended in others:
        ended.acquire()
    if failures:
        raise failures[0]
    return found


def _started(work: Callable[[], None]) -> _thread.LockType:
    """A lock that is free when a thread of its own has done ``work``, or when there can be no more threads."""
    ended = _thread.allocate_lock()
    ended.acquire()

    def thread() -> None:
        try:
            work()
        finally:
            ended.release()

    try:
        _thread.start_new_thread(thread, ())
    except RuntimeError:
        ended.release()
    return ended
