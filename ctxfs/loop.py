"""The FUSE thread's event loop: polls /dev/fuse and runs each handler to completion (design, FUSE facts).

pyfuse3 takes its loop from the module attribute ``pyfuse3.trio``; ``Loop`` is what it needs of one, and nothing
more. A handler that awaits nothing costs no task switch; one that awaits a ``Future`` parks, and another worker
task goes on reading. One price per request is what counts here: trio's is three to five times this.

Threads: everything here belongs to the thread that calls ``run``, but for ``call_soon_threadsafe``.
What is given to ``when_idle`` (group commit) runs before the loop would wait, at the latest after ``BURST`` requests.
"""

import os
import select
import types
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
BURST = 16


class ClosedResourceError(Exception):
    """The FUSE descriptor is about to be closed (pyfuse3 ends its workers by it)."""


class Awaited(Protocol):
    """What a coroutine yields to the loop."""

    def park(self, task: "_Task") -> None:
        """Wakes ``task`` when it may go on."""


class Future(Generic[T]):
    """A value that arrives once. Await it in a handler; set it on the loop's thread."""

    __slots__ = ("_done", "_error", "_loop", "_tasks", "_value")

    def __init__(self, loop: "Loop") -> None:
        self._loop = loop
        self._tasks: list[_Task] = []
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None

    def set(self, value: T) -> None:
        """Hands the value to all who wait, now or later."""
        self._value = value
        self._settle()

    def fail(self, error: BaseException) -> None:
        """Raises ``error`` in all who wait, now or later."""
        self._error = error
        self._settle()

    def _settle(self) -> None:
        self._done = True
        self._loop.ready.extend(self._tasks)
        self._tasks.clear()

    def __await__(self) -> Generator["Future[T]", None, T]:
        if not self._done:
            yield self
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def park(self, task: "_Task") -> None:
        if self._done:
            self._loop.ready.append(task)
        else:
            self._tasks.append(task)


@types.coroutine
def _nothing() -> Generator[Any, Any, None]:
    """Waits for nothing."""
    yield from ()


# What seldom needs to wait gives this: it is over, so it can be awaited again and again, and is never made.
_DONE = _nothing()
next(_DONE, None)


class _Task:
    """A running coroutine; pyfuse3 wants a name of the current one."""

    __slots__ = ("coroutine", "name")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        self.coroutine = coroutine
        self.name = name


class Lock:
    """Held by the worker that reads /dev/fuse.

    ``release`` hands over to nobody: a waiter is woken only once the releasing task has parked, or every
    request would pay a task switch.
    """

    def __init__(self, loop: "Loop") -> None:
        self._loop = loop
        self._held = False
        self._woken = False
        self._waiters: deque[_Task] = deque()

    def __aenter__(self) -> Awaitable[None]:
        if self._held:
            return self
        self._held = True
        return _DONE

    def __await__(self) -> Generator["Lock", None, None]:
        while self._held:
            yield self
            self._woken = False
        self._held = True

    def park(self, task: "_Task") -> None:
        """Called by the loop for a task that waits for the lock."""
        self._waiters.append(task)

    def __aexit__(self, *exc: object) -> Awaitable[None]:
        self._held = False
        return _DONE

    def wake_next(self) -> None:
        """Called by the loop after a task parked."""
        if self._waiters and not self._held and not self._woken:
            self._woken = True
            self._loop.ready.append(self._waiters.popleft())


class _Nursery:
    """Starts tasks; the loop ends when all have, and raises what one raised."""

    def __init__(self, loop: "Loop") -> None:
        self._loop = loop

    async def __aenter__(self) -> "_Nursery":
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: object, name: str = "") -> None:
        self._loop.start(function(*args), name)


class Loop:
    """One loop for one FUSE session. Stands in for the module ``trio`` inside pyfuse3."""

    ClosedResourceError = ClosedResourceError

    def __init__(self) -> None:
        self.ready: deque[_Task] = deque()
        self.lowlevel = self
        self._current: _Task | None = None
        self._tasks = 0
        self._locks: list[Lock] = []
        self._calls: deque[Callable[[], None]] = deque()
        self._deferred: list[Callable[[], None]] = []
        self._burst = 0
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wakeups = _poll_of(self._wakeup)
        self._requests = self._everything = self._wakeups
        self._fd: int | None = None
        self._reader: Future[None] | None = None
        self._closing = False

    # What pyfuse3 takes from its "trio".

    def Lock(self) -> Lock:
        lock = Lock(self)
        self._locks.append(lock)
        return lock

    def open_nursery(self) -> _Nursery:
        return _Nursery(self)

    def current_task(self) -> _Task:
        assert self._current is not None
        return self._current

    def current_trio_token(self) -> "Loop":
        return self

    def wait_readable(self, fd: int) -> Awaitable[None]:
        """Done with the next request; parks where something else is due first. There is one such ``fd``."""
        if fd != self._fd:
            self._begin(fd)
        if not (self.ready or self._calls) and self._next_request():
            return _DONE
        self._reader = Future(self)
        return self._reader

    def _begin(self, fd: int) -> None:
        if self._closing:
            raise ClosedResourceError
        self._fd, self._requests, self._everything = fd, _poll_of(fd), _poll_of(fd, self._wakeup)

    def _next_request(self) -> bool:
        """Whether there is a request; waits for it where no task needs to be switched to meanwhile."""
        if not self._deferred:
            return self._wait(self._everything)
        self._burst += 1
        return self._burst <= BURST and bool(self._requests.poll(0))

    def notify_closing(self, fd: int) -> None:
        """Ends the worker that waits for ``fd``; called on this thread."""
        self._fd, self._closing = None, True
        if self._reader is not None:
            self._reader.fail(ClosedResourceError())
            self._reader = None

    # What ctxfs uses.

    def call_soon_threadsafe(self, function: Callable[[], None]) -> None:
        """Runs ``function`` on the loop's thread, soon; from any thread."""
        self._calls.append(function)
        os.eventfd_write(self._wakeup, 1)

    def has_more(self) -> bool:
        """Whether there is more to do now than what is running: a task, a call, or a request that is queued."""
        return bool(self.ready or self._calls or self._requests.poll(0))

    def when_idle(self, function: Callable[[], None]) -> None:
        """Runs ``function`` once, before the loop would wait for the next request."""
        self._deferred.append(function)

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str = "") -> None:
        """Runs ``coroutine`` as a task of its own; what it raises leaves ``run``."""
        self._tasks += 1
        self.ready.append(_Task(coroutine, name))

    def run(self, function: Callable[[], Awaitable[None]]) -> None:
        """Runs ``function`` and every task it starts to their end; raises what one of them raised."""

        async def main() -> None:
            await function()

        self.start(main(), "main")
        while self._tasks:
            self._turn()

    def _turn(self) -> None:
        while self._calls:
            self._calls.popleft()()
        while self.ready:
            self._step(self.ready.popleft())
        if self._calls:
            # A reader that waited may have taken their wake-up.
            return
        if self._reader is None:
            if self._tasks and not self._deferred:
                self._wait(self._wakeups)
        elif self._next_request():
            reader, self._reader = self._reader, None
            reader.set(None)
            return
        self._run_deferred()

    def _run_deferred(self) -> None:
        self._burst = 0
        deferred, self._deferred = self._deferred, []
        for function in deferred:
            function()

    def _step(self, task: _Task) -> None:
        self._current = task
        try:
            awaited: Awaited = task.coroutine.send(None)
        except StopIteration:
            self._tasks -= 1
        else:
            awaited.park(task)
        for lock in self._locks:
            lock.wake_next()

    def _wait(self, poll: select.poll) -> bool:
        """Waits for a call from another thread, or a request; whether there is a request."""
        # A wake-up beside a request is left for the next time: what it stands for is looked for before that.
        found, _ = poll.poll()[0]
        if found != self._wakeup:
            return True
        os.eventfd_read(found)
        return False


def _poll_of(*fds: int) -> select.poll:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return poll
