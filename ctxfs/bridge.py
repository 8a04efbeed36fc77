"""The way from trio's thread to the FUSE thread, whose the store and the tree are (design, FUSE facts).

``run`` is for what is short and awaits nothing: a few rows of the store, a look at the tree. ``perform`` is for what
awaits on the FUSE thread: an append through ``core.commits``, the only way by which lines reach the store.

    session = await bridge.run(lambda core: core.store.session(owner, "default"))
    change = await bridge.perform(lambda core: core.commits.append(Append(session.id, lines)))

``perform_durably`` also waits for the disk, without another turn on the FUSE thread.

Each call may block every user of the mount: ask for no more than about a millisecond's work, and call again for more;
requests go first between two calls. A caller that is cancelled leaves what it asked for to be done or not. A failing
disk shows in ``status``, as for file operations; everything else that is raised is the caller's. Once the FUSE thread
has ended every call raises ``MountGone``, so nobody waits for it for ever, whatever shields them from cancellation.
"""

import contextlib
import errno
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from backend.errors import CtxError, StoreFailed, StoreFull
from ctxfs.loop import Loop

if TYPE_CHECKING:
    from ctxfs.core import Core

T = TypeVar("T")


class MountGone(CtxError):
    """Nobody serves the mount any more: it was unmounted, or its FUSE connection ended."""

    errno = errno.ENODEV


class Bridge:
    """``run`` and ``perform`` are called on trio's thread, what they are given on the FUSE thread."""

    def __init__(self, loop: Loop, core: "Core") -> None:
        self._loop = loop
        self._core = core
        self._waiting: set[_Answer[Any]] = set()
        self._is_over = False

    def end(self) -> None:
        """The loop has ended: who still waits for it, or comes later, gets ``MountGone``. FUSE thread only."""
        self._is_over = True
        for answer in list(self._waiting):
            answer.fail(_gone())

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

        return await self._answered(answer, call)

    def post(self, work: Callable[["Core"], None]) -> None:
        """Has ``work`` done soon; it raises nothing."""
        self._loop.call_soon_threadsafe(lambda: work(self._core))

    async def perform(self, work: Callable[["Core"], Awaitable[T]]) -> T:
        """What the task ``work`` returns or raises; it may await the loop's futures, and nothing of trio."""
        answer = _Answer[T]()
        return await self._answered(answer, self._starting(work, answer, answer.set))

    async def perform_durably(self, work: Callable[["Core"], Awaitable[T]]) -> tuple[T, CtxError | None]:
        """As ``perform``, once all that was committed by then is on disk; beside it why that cannot be said."""
        answer = _Answer[tuple[T, CtxError | None]]()

        def committed(result: T) -> None:
            # The sync thread outlives the loop, and answers.
            self._waiting.discard(answer)
            self._core.commits.when_synced(partial(synced, result))

        def synced(result: T, failure: Exception | None) -> None:
            if failure is None or isinstance(failure, CtxError):
                answer.set((result, failure))
            else:
                answer.fail(failure)

        return await self._answered(answer, self._starting(work, answer, committed))

    async def _answered(self, answer: "_Answer[T]", call: Callable[[], None]) -> T:
        """The answer that ``call`` leads to, once it is called on the FUSE thread."""
        self._waiting.add(answer)
        try:
            # Only now: ``end`` sets this first, and then looks who waits.
            if self._is_over:
                raise _gone()
            self._loop.call_soon_threadsafe(call)
            return await answer.wait()
        finally:
            self._waiting.discard(answer)

    def _starting(
        self, work: Callable[["Core"], Awaitable[T]], answer: "_Answer[Any]", done: Callable[[T], None]
    ) -> Callable[[], None]:
        """A call that starts the task ``work``; ``done`` gets what it returns, the answer what it raises."""

        async def task() -> None:
            try:
                result = await work(self._core)
            except Exception as error:
                answer.fail(self._noted(error))
            else:
                done(result)

        return lambda: self._loop.start(task(), "bridge")

    def _noted(self, error: Exception) -> Exception:
        if isinstance(error, StoreFull | StoreFailed):
            self._core.health.failed(error)
        return error


def _gone() -> MountGone:
    return MountGone("the mount is gone")


class _Answer(Generic[T]):
    """Given on any other thread; awaited on trio's, by whom makes it. What was given first counts."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._task: trio.lowlevel.Task | None = None
        self._values: list[T] = []
        self._error: Exception | None = None

    def set(self, value: T) -> None:
        self._values.append(value)
        self._arrive()

    def fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._arrive()

    def _arrive(self) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._wake)

    def _wake(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    async def wait(self) -> T:
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abandon)
        if self._values:
            return self._values[0]
        assert self._error is not None, "whoever wakes a task has answered it"
        raise self._error

    def _abandon(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED
