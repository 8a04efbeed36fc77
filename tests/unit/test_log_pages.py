"""Pages of a log that grew are gone before anybody hears of its size; nobody waits for those of others."""

import threading
from collections.abc import Awaitable, Callable, Collection, Iterator

import pytest

from ctxfs.log_pages import LogPages
from ctxfs.loop import Loop
from ctxfs.statistics import Statistics

LOG, OTHER = 1, 2


class Pages:
    """``dropped`` in the thread, which waits for ``may_drop`` each time; ``shown`` as the FUSE thread is told."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.statistics = Statistics()
        self.may_drop = threading.Semaphore(0)
        self.dropped: list[int] = []
        self.shown: list[list[int]] = []
        self.bug: Exception | None = None
        self.pages = LogPages(self.loop, self.statistics, self._drop, self._show)

    def _drop(self, inode: int) -> None:
        self.may_drop.acquire()
        self.dropped.append(inode)

    def _show(self, logs: Collection[int]) -> None:
        self.shown.append(list(logs))
        if self.bug is not None:
            raise self.bug

    async def until_shown(self, *inodes: int) -> None:
        over = self.pages.hidden(*inodes)
        assert over is not None
        await over

    def run(self, function: Callable[[], Awaitable[None]]) -> None:
        self.loop.run(function)


@pytest.fixture
def at() -> Iterator[Pages]:
    at = Pages()
    yield at
    at.may_drop.release(100)
    at.pages.close()


def test_a_log_that_was_read_keeps_its_size_until_its_pages_are_gone(at: Pages) -> None:
    async def main() -> None:
        at.pages.read(LOG, 10)
        assert at.pages.grew(LOG)
        assert at.pages.size(LOG, 30) == 10
        at.may_drop.release()
        await at.until_shown(LOG)
        assert at.pages.size(LOG, 30) == 30

    at.run(main)
    assert (at.dropped, at.shown) == ([LOG], [[LOG]])


@pytest.mark.parametrize("forgotten", [False, True])
def test_of_what_the_kernel_has_no_pages_nothing_is_hidden(at: Pages, forgotten: bool) -> None:
    if forgotten:
        at.pages.read(LOG, 10)
        at.pages.forgotten(LOG)
    at.pages.read(OTHER, 5)
    assert at.pages.grew(OTHER)
    assert not at.pages.grew(LOG)
    assert at.pages.hidden(LOG) is None
    assert at.pages.size(LOG, 30) == 30


def test_lines_that_follow_are_shown_with_the_first_where_nobody_read_between(at: Pages) -> None:
    async def main() -> None:
        at.pages.read(LOG, 10)
        assert at.pages.grew(LOG)
        assert at.pages.grew(LOG)
        at.may_drop.release()
        await at.until_shown(LOG)
        assert at.pages.size(LOG, 50) == 50

    at.run(main)
    assert (at.dropped, at.shown) == ([LOG], [[LOG]])


def test_what_was_read_while_pages_go_is_dropped_again_and_each_size_is_shown_in_turn(at: Pages) -> None:
    async def main() -> None:
        at.pages.read(LOG, 10)
        at.pages.grew(LOG)
        first = at.pages.hidden(LOG)
        assert first is not None
        at.pages.read(LOG, 30)
        at.pages.grew(LOG)
        at.pages.read(LOG, 50)
        at.pages.grew(LOG)
        assert at.pages.size(LOG, 70) == 10
        assert at.pages.hidden(LOG) is not first
        at.may_drop.release()
        await first
        assert at.pages.size(LOG, 70) == 30
        at.may_drop.release()
        await at.until_shown(LOG)
        assert at.pages.size(LOG, 70) == 70

    at.run(main)
    assert (at.dropped, at.shown) == ([LOG, LOG], [[LOG], [LOG]])


def test_logs_that_grow_meanwhile_share_the_next_round(at: Pages) -> None:
    async def main() -> None:
        for inode in (LOG, OTHER, 3):
            at.pages.read(inode, 10)
            at.pages.grew(inode)
        at.may_drop.release(3)
        await at.until_shown(LOG, OTHER, 3)

    at.run(main)
    assert at.shown == [[LOG], [OTHER, 3]]


def test_a_bug_where_readers_are_told_is_counted_and_the_writer_is_answered(
    at: Pages, caplog: pytest.LogCaptureFixture
) -> None:
    at.bug = RuntimeError("bug")
    at.may_drop.release()

    async def main() -> None:
        at.pages.read(LOG, 10)
        at.pages.grew(LOG)
        await at.until_shown(LOG)

    at.run(main)
    assert (at.statistics.internal, at.statistics.errors["EIO"]) == (1, 1)
    assert "readers were not told of an append" in caplog.text


def test_who_finishes_is_called_once_no_page_is_waited_for_and_no_writer_waits(at: Pages) -> None:
    events: list[str] = []

    async def write(inode: int) -> None:
        at.pages.read(inode, 10)
        at.pages.grew(inode)
        await at.until_shown(inode)
        events.append(f"answered {inode}")

    async def finish() -> None:
        at.pages.finish(lambda: events.append("finished"))
        assert events == []
        at.may_drop.release()

    async def main() -> None:
        for part in (write(LOG), write(OTHER), finish()):
            at.loop.start(part)

    at.run(main)
    assert sorted(events) == ["answered 1", "answered 2", "finished"]
    assert at.dropped == [LOG]
    at.pages.read(LOG, 10)
    assert at.pages.grew(LOG)
    assert at.pages.hidden(LOG) is None
