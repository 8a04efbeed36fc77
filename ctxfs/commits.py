"""Group commit and fsync for the FUSE thread: the one way by which lines reach the store (design, Commit policy).

An append is queued; as soon as no more requests are waiting, one transaction takes all that is queued, the kernel is
told, and all are answered. So concurrent writers share a commit, and a lone one's handler never parks. ``sync`` waits
on a thread of its own; all who wait when it starts share one.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Protocol

from backend.rows import Append, Appended
from backend.store import FileStore
from ctxfs.disk_health import DiskHealth
from ctxfs.loop import Future, Loop
from ctxfs.statistics import Statistics

log = logging.getLogger("ctxfs")


class Kernel(Protocol):
    """What is told of an append (``ctxfs.kernel_cache``)."""

    def appended(self, change: Appended) -> None: ...

    def hidden(self, session: int) -> Future[None] | None: ...


class Commits:
    """Belongs to the loop's thread; ``close`` ends the sync thread. ``writers`` have a log open and may append."""

    def __init__(
        self,
        loop: Loop,
        store: FileStore,
        health: DiskHealth,
        statistics: Statistics,
        kernel: Kernel,
    ) -> None:
        self.writers = 0
        self._loop = loop
        self._store = store
        self._health = health
        self._statistics = statistics
        self._kernel = kernel
        # What the next commit takes, and its results in the same order: all who wait share one future.
        self._queue: list[Append] = []
        self._committed: Future[Sequence[Appended | Exception]] = Future(loop)
        self._syncs: list[Future[None]] = []
        self._told: list[Callable[[Exception | None], None]] = []
        # A semaphore and a flag in one, and woken sooner than threading's.
        self._sync_wanted: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._sync_forever, name="ctxfs-sync", daemon=True)
        self._thread.start()

    async def append(self, append: Append) -> Appended:
        """Returns once it is committed and the kernel is told; raises why it was refused."""
        queue = self._queue
        if queue or (self.writers > 1 and self._loop.has_more()):
            if not queue:
                self._loop.when_idle(self._take_queue)
            number = len(queue)
            queue.append(append)
            result = (await self._committed)[number]
        else:
            [result] = self.append_all([append])
        if isinstance(result, Exception):
            raise result
        if (over := self._kernel.hidden(result.session.id)) is not None:
            await over
        return result

    async def shown(self, change: Appended) -> None:
        """Waits until readers can see all that was appended."""
        over = self._kernel.hidden(change.session.id)
        if over is not None:
            await over

    def append_all(self, batch: Sequence[Append]) -> Sequence[Appended | Exception]:
        """One transaction for several, at once: what each changed (``shown`` waits for it), or why it was refused."""
        # A handler waits for each result, so what the store raises is theirs, never the loop's end.
        try:
            results = self._store.append(batch)
        except Exception as error:
            return [error] * len(batch)
        for result in results:
            if type(result) is Appended:
                self._publish(result)
        return results

    def _take_queue(self) -> None:
        batch, committed = self._queue, self._committed
        self._queue, self._committed = [], Future(self._loop)
        committed.set(self.append_all(batch))

    def _publish(self, change: Appended) -> None:
        # The lines are stored: a bug from here on must not make their writer send them again, nor end the loop.
        try:
            if self._health.failure is not None:
                self._health.recovered()
            self._kernel.appended(change)
        except Exception as error:
            self._statistics.failed("publish", error)
            log.exception("readers were not told of an append")

    def signal(self) -> Future[None]:
        """Something that handlers can wait for and one of them sets."""
        return Future(self._loop)

    async def others_first(self) -> None:
        """Lets requests that wait go first; for handlers that work for long."""
        turn = self.signal()
        self._loop.when_idle(lambda: turn.set(None))
        await turn

    async def sync(self) -> None:
        """Returns when everything committed so far is on disk."""
        synced: Future[None] = Future(self._loop)
        self._syncs.append(synced)
        self._sync_wanted.put(True)
        await synced

    def when_synced(self, call: Callable[[Exception | None], None]) -> None:
        """``call`` is called on the sync thread, as soon as ``sync`` would return, with what it would raise."""
        self._told.append(call)
        self._sync_wanted.put(True)

    def close(self) -> None:
        self._sync_wanted.put(False)
        self._thread.join()

    def _sync_forever(self) -> None:
        while self._sync_wanted.get():
            # list.append and these swaps are atomic under the GIL; who comes later waits for the next round.
            waiting, self._syncs = self._syncs, []
            told, self._told = self._told, []
            if waiting or told:
                self._sync(waiting, told)

    def _sync(self, waiting: list[Future[None]], told: list[Callable[[Exception | None], None]]) -> None:
        failure: Exception | None = None
        try:
            self._store.sync()
        except Exception as error:
            failure = error
        for call in told:
            call(failure)
        if waiting:
            self._loop.call_soon_threadsafe(lambda: _settle(waiting, failure))


def _settle(waiting: list[Future[None]], failure: Exception | None) -> None:
    for future in waiting:
        if failure is None:
            future.set(None)
        else:
            future.fail(failure)
