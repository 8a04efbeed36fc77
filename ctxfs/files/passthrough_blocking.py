"""Calls that may wait for the disk, kept off the FUSE thread: one slow file must not stop the mount for everybody.

An ``Offload`` runs a call and gives its result to the handler that awaits it. ``inline`` does so at once (tests,
tools); ``BlockingCalls`` on threads of its own, while the FUSE thread goes on with other requests. The kernel keeps a
file open, and its inode locked where POSIX wants that, until the request is answered: no lock is needed here.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

from ctxfs.loop import Future, Loop

T = TypeVar("T")
_THREADS = 4


class Offload(Protocol):
    """Awaits ``call()`` somewhere: its result, or what it raised."""

    async def __call__(self, call: Callable[[], T]) -> T: ...


async def inline(call: Callable[[], T]) -> T:
    """The ``Offload`` that lets every other request wait."""
    return call()


class BlockingCalls:
    """The ``Offload`` for handlers on ``loop``. Belongs to the loop's thread; ``close`` ends the threads."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="ctxfs-disk")

    async def __call__(self, call: Callable[[], T]) -> T:
        result: Future[T] = Future(self._loop)
        self._pool.submit(self._run, call, result)
        return await result

    def _run(self, call: Callable[[], T], result: Future[T]) -> None:
        try:
            value = call()
        except BaseException as error:
            self._loop.call_soon_threadsafe(partial(result.fail, error))
        else:
            self._loop.call_soon_threadsafe(partial(result.set, value))

    def close(self) -> None:
        """Waits for the calls under way."""
        self._pool.shutdown()
