"""What clients do while they are answered, seen without a task for each: one epoll watches all of them. Trio's thread.

To watch a connection for a while costs two system calls; only what its client does meanwhile costs more.
"""

import contextlib
import select
from collections.abc import Callable, Iterator
from typing import NamedTuple

import trio


class _Watch(NamedTuple):
    readable: Callable[[], bool] | None
    gone: Callable[[], None]


class Lookout:
    """``run`` while connections are served, ``close`` after that; ``failed`` is told of bugs in what it calls."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._epoll = select.epoll()
        self._watches: dict[int, _Watch] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            for descriptor, events in self._epoll.poll(0):
                try:
                    self._look(descriptor, events)
                except Exception as error:
                    # A bug in one conversation ends that watch, and nobody else's.
                    self._failed(error)
                    self._forget(descriptor)

    def close(self) -> None:
        """When nothing is watched any more."""
        self._epoll.close()

    @contextlib.contextmanager
    def watching(
        self, descriptor: int, readable: Callable[[], bool] | None, gone: Callable[[], None]
    ) -> Iterator[None]:
        """In the block, ``readable`` is called while there is something to read, until it returns False (None: never).

        ``gone`` is called once, when the other side has closed both directions.
        """
        self._watches[descriptor] = _Watch(readable, gone)
        # The end of both directions is always told.
        self._epoll.register(descriptor, select.EPOLLIN if readable else 0)
        try:
            yield
        finally:
            self._forget(descriptor)

    def _look(self, descriptor: int, events: int) -> None:
        watch = self._watches[descriptor]
        if events & (select.EPOLLHUP | select.EPOLLERR):
            self._forget(descriptor)
            watch.gone()
        elif watch.readable and not watch.readable():
            self._epoll.modify(descriptor, 0)

    def _forget(self, descriptor: int) -> None:
        if self._watches.pop(descriptor, None):
            self._epoll.unregister(descriptor)
