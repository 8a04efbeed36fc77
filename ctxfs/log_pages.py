"""The kernel's pages of logs that grow: they are dropped before it hears of a new size (spec 1.3).

A page that a log ended in is zeros behind that end. The kernel takes a new size over first and then drops such pages
itself, so whoever reads in between gets zeros for a line. Therefore whoever asks for the size gets the old one until
the pages are gone, and whoever appended is answered after that. What is read meanwhile holds the new lines already,
so one round is enough for all that grew before it began.

Pages are dropped by a thread of its own: the kernel waits there for reads that are under way, and the FUSE thread
answers those. Nothing else waits for it, so nothing it waits for can be waiting for it. Everything but that thread's
loop belongs to the FUSE thread.
"""

import logging
import threading
from collections.abc import Callable, Collection
from functools import partial
from queue import SimpleQueue

import msgspec

from ctxfs.loop import Future, Loop
from ctxfs.statistics import Statistics

log = logging.getLogger("ctxfs")


class _Round(msgspec.Struct):
    """Logs whose pages go together: their sizes before the lines that the kernel is yet to hear of, by inode."""

    over: Future[None]
    sizes: dict[int, int]


class LogPages:
    """``drop`` has an inode's pages dropped; ``shown`` is told which logs have all their lines shown from now on."""

    def __init__(
        self,
        loop: Loop,
        statistics: Statistics,
        drop: Callable[[int], None],
        shown: Callable[[Collection[int]], None],
    ) -> None:
        self._loop = loop
        self._statistics = statistics
        self._drop = drop
        self._shown = shown
        self._read: dict[int, int] = {}
        self._running: _Round | None = None
        self._next = _Round(Future(loop), {})
        self._finished: Callable[[], None] | None = None
        self._wanted: SimpleQueue[_Round | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._drop_forever, name="ctxfs-pages", daemon=True)
        self._thread.start()

    def finish(self, then: Callable[[], None]) -> None:
        """Begins no round any more, and calls ``then`` as soon as none is running.

        Until then requests must be answered, as the thread may wait for one in the kernel, where no signal ends it.
        """
        self._finished = then
        if self._running is None:
            then()

    def close(self) -> None:
        self._wanted.put(None)
        self._thread.join()

    def read(self, inode: int, size: int) -> None:
        """The kernel may have pages of a log of ``size`` bytes from now on."""
        self._read[inode] = size

    def forgotten(self, inode: int) -> None:
        """It has none any more."""
        self._read.pop(inode, None)

    def size(self, inode: int, size: int) -> int:
        """What the kernel may know of a log that has ``size`` bytes."""
        if self._running is None:
            return size
        return self._running.sizes.get(inode, self._next.sizes.get(inode, size))

    def grew(self, inode: int) -> bool:
        """Whether a log that was appended to is hidden for now; ``shown`` is called for it when it is no more."""
        before = self._read.pop(inode, None)
        if before is None:
            return self.hidden(inode) is not None
        self._next.sizes.setdefault(inode, before)
        if self._running is None and self._finished is None:
            self._begin()
        return True

    def hidden(self, *inodes: int) -> Future[None] | None:
        """What to wait for until all lines of these logs are shown: the last round that has one of them, if any."""
        if self._running is None:
            return None
        for round in (self._next, self._running):
            if not round.sizes.keys().isdisjoint(inodes):
                return round.over
        return None

    def _begin(self) -> None:
        self._running, self._next = self._next, _Round(Future(self._loop), {})
        self._wanted.put(self._running)

    def _end(self, round: _Round) -> None:
        self._running = None
        if self._finished is not None:
            self._next.over.set(None)
        elif self._next.sizes:
            self._begin()
        try:
            self._shown(round.sizes)
        except Exception as error:
            # It would end the loop, and the lines are stored: their writers must not send them again.
            self._statistics.failed("publish", error)
            log.exception("readers were not told of an append")
        round.over.set(None)
        if self._finished is not None:
            self._finished()

    def _drop_forever(self) -> None:
        while (round := self._wanted.get()) is not None:
            for inode in round.sizes:
                self._drop(inode)
            self._loop.call_soon_threadsafe(partial(self._end, round))
