"""The way from trio's thread to the FUSE thread, whose the store and the tree are (design, FUSE facts).

``run`` is for what is short and awaits nothing: a few rows of the store, a look at the tree. ``perform`` is for what
awaits on the FUSE thread: an append through ``core.commits``, the only way by which lines reach the store.

    session = await bridge.run(lambda core: core.store.session(owner, "default"))
    change = await bridge.perform(lambda core: core.commits.append(Append(session.id, lines)))

Each call may block every user of the mount: ask for no more than about a millisecond's work, and call again for more;
requests go first between two calls. A caller that is cancelled leaves what it asked for to be done or not. A failing
disk shows in ``status``, as for file operations; everything else that is raised is the caller's.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import trio

from backend.errors import StoreFailed, StoreFull
from ctxfs.loop import Loop

if TYPE_CHECKING:
    from ctxfs.core import Core

T = TypeVar("T")


class Bridge:
    """``run`` and ``perform`` are called on trio's thread, what they are given on the FUSE thread."""

    def __init__(self, loop: Loop, core: "Core") -> None:
        self._loop = loop
        self._core = core

    async def run(self, work: Callable[["Core"], T]) -> T:
        """What ``work`` returns or raises."""
        answer = _Answer[T]()

        def call() -> None:
            try:
                result = work(self._core)
            except Exception as error:
                answer.fail(self._noted(error))
            else:
                answer.set(result)

        self._loop.call_soon_threadsafe(call)
        return await answer.wait()

    async def perform(self, work: Callable[["Core"], Awaitable[T]]) -> T:
        """What the task ``work`` returns or raises; it may await the loop's futures, and nothing of trio."""
        answer = _Answer[T]()

        async def task() -> None:
            try:
                result = await work(self._core)
            except Exception as error:
                answer.fail(self._noted(error))
            else:
                answer.set(result)

        self._loop.call_soon_threadsafe(lambda: self._loop.start(task(), "bridge"))
        return await answer.wait()

    def _noted(self, error: Exception) -> Exception:
        if isinstance(error, StoreFull | StoreFailed):
            self._core.health.failed(error)
        return error


class _Answer(Generic[T]):
    """Set once on the FUSE thread, awaited on trio's."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._arrived = trio.Event()
        self._values: list[T] = []
        self._error: Exception | None = None

    def set(self, value: T) -> None:
        self._values.append(value)
        self._arrive()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._arrive()

    def _arrive(self) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._arrived.set)

    async def wait(self) -> T:
        await self._arrived.wait()
        if self._error is not None:
            raise self._error
        return self._values[0]
