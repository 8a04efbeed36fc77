"""From trio's thread to the loop's and back: results, errors, tasks, callers that go away, and a loop that ends."""

import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio

from backend.errors import StoreFull
from ctxfs.bridge import Bridge, MountGone
from ctxfs.core import Core
from ctxfs.loop import Future
from tests.unit.world import World


class Served:
    """A world whose loop runs in a thread of its own, as a mount's does."""

    def __init__(self, directory: Path) -> None:
        self.world = World(directory)
        self.end: Future[None] = Future(self.world.loop)
        self.bridge = Bridge(self.world.loop, self.world.core)
        self.thread = threading.Thread(target=lambda: self.world.loop.run(self._until_the_end))
        self.thread.start()

    async def _until_the_end(self) -> None:
        await self.end

    def close(self) -> None:
        self.world.loop.call_soon_threadsafe(lambda: self.end.set(None))
        self.thread.join()
        self.world.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


def fails(error: Exception) -> Callable[[Core], None]:
    def work(_: Core) -> None:
        raise error

    return work


def test_work_is_done_on_the_loops_thread(served: Served) -> None:
    assert trio.run(served.bridge.run, lambda _: threading.current_thread()) is served.thread


def test_a_task_may_await_the_loop(served: Served) -> None:
    async def work(core: Core) -> str:
        await core.commits.sync()
        return threading.current_thread().name

    assert trio.run(served.bridge.perform, work) == served.thread.name


def test_what_is_raised_is_the_callers(served: Served) -> None:
    async def task(core: Core) -> None:
        fails(KeyError("x"))(core)

    calls: list[Callable[[], Awaitable[None]]] = [
        lambda: served.bridge.run(fails(KeyError("x"))),
        lambda: served.bridge.perform(task),
    ]
    for call in calls:
        with pytest.raises(KeyError):
            trio.run(call)
    assert trio.run(served.bridge.run, lambda _: 1) == 1


def test_a_full_disk_shows_in_the_status(served: Served) -> None:
    with pytest.raises(StoreFull):
        trio.run(served.bridge.run, fails(StoreFull("the disk is full")))
    assert served.world.core.health.failure == "disk full"


def test_a_caller_that_goes_away_takes_nobody_along(served: Served) -> None:
    """One is cancelled, one's trio has ended when its answer comes."""
    gate = threading.Event()

    async def impatient() -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(served.bridge.run, lambda _: gate.wait())
                nursery.start_soon(served.bridge.run, lambda _: None)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()

    trio.run(impatient)
    gate.set()
    assert trio.run(served.bridge.run, lambda _: "still here") == "still here"


def test_many_at_once_are_answered_each(served: Served) -> None:
    async def ask(number: int, answers: dict[int, int]) -> None:
        answers[number] = await served.bridge.run(lambda _: number * 2)

    async def main() -> dict[int, int]:
        answers: dict[int, int] = {}
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(ask, number, answers)
        return answers

    assert trio.run(main) == {number: 2 * number for number in range(100)}


async def nothing(_: Core) -> None:
    pass


CALLS: dict[str, Callable[[Bridge], Awaitable[object]]] = {
    "run": lambda bridge: bridge.run(lambda _: None),
    "perform": lambda bridge: bridge.perform(nothing),
    "perform_durably": lambda bridge: bridge.perform_durably(nothing),
}


@pytest.mark.parametrize("name", CALLS)
def test_who_waits_when_the_loop_ends_or_comes_later_is_told_even_where_nothing_cancels_it(
    tmp_path: Path, name: str
) -> None:
    world = World(tmp_path)
    bridge = Bridge(world.loop, world.core)

    async def ask() -> None:
        with trio.CancelScope(shield=True), pytest.raises(MountGone):
            await CALLS[name](bridge)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            bridge.end()
        await ask()

    trio.run(main)
    world.close()


def test_what_was_done_before_the_loop_ended_counts(served: Served) -> None:
    gate, ended = threading.Event(), threading.Event()
    answers = list[bool]()

    def end(_: Core) -> None:
        served.bridge.end()
        ended.set()

    async def ask() -> None:
        answers.append(await served.bridge.run(lambda _: gate.wait()))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            served.bridge.post(end)
            gate.set()
            # Blocks trio, so that nobody is told of the answer before the end.
            ended.wait()

    trio.run(main)
    assert answers == [True]
