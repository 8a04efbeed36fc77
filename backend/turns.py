"""Calls that run one at a time, in the order in which they were made (spec 2.7).

A lock of an event loop serves in the order in which tasks come to ask for it, and trio starts tasks in any order: so
a call takes its place when it is made, before anything awaits it. Works on trio's loop and on asyncio's; one thread.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

import sniffio

T = TypeVar("T")


class _Event(Protocol):
    def set(self) -> object: ...
    async def wait(self) -> object: ...


class _Turn:
    """A call: whether its coroutine has begun, and how to wake it while it waits."""

    def __init__(self) -> None:
        self.begun = False
        self.event: _Event | None = None


class Turns:
    """The queue of one object."""

    def __init__(self) -> None:
        self._queue: deque[_Turn] = deque()

    def run(self, job: Callable[[], Awaitable[T]]) -> Coroutine[Any, Any, T]:
        """Takes the next place for ``job``, and returns the coroutine that waits for its turn and runs it.

        A coroutine that has not begun when its turn has come, nor one round of the event loop later, loses its place
        (nobody awaits it, or its task was cancelled): it gets the last one when it does begin.
        """
        turn = _Turn()
        self._queue.append(turn)
        return self._run(turn, job)

    async def _run(self, turn: _Turn, job: Callable[[], Awaitable[T]]) -> T:
        turn.begun = True
        if turn not in self._queue:
            self._queue.append(turn)
        try:
            await self._wait(turn)
            return await job()
        finally:
            self._queue.remove(turn)
            self._wake()

    async def _wait(self, turn: _Turn) -> None:
        while (first := self._queue[0]) is not turn:
            if first.begun:
                turn.event = _event()
                await turn.event.wait()
                continue
            await _round()
            if self._queue[0] is first and not first.begun:
                self._queue.popleft()

    def _wake(self) -> None:
        """Wakes the first call that has begun: those before it get one round to begin from it."""
        waiting = next((turn for turn in self._queue if turn.begun), None)
        if waiting is not None and waiting.event is not None:
            waiting.event.set()


def _event() -> _Event:
    if sniffio.current_async_library() == "asyncio":
        return asyncio.Event()
    import trio

    return trio.Event()


async def _round() -> None:
    if sniffio.current_async_library() == "asyncio":
        return await asyncio.sleep(0)
    import trio

    return await trio.lowlevel.checkpoint()
