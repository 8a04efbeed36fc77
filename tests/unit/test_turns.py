"""Calls run one at a time in the order in which they were made, on both kinds of event loop (spec 2.7)."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

import pytest
import trio
import trio.testing

from backend.turns import Turns


class Loop(Protocol):
    """What these tests need of an event loop."""

    def run(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None: ...
    async def pause(self) -> None: ...
    async def together(self, calls: Sequence[Coroutine[Any, Any, Any]]) -> None: ...


class Trio:
    """Starts tasks of one moment in any order."""

    def run(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        trio.run(function)

    async def pause(self) -> None:
        await trio.lowlevel.checkpoint()

    async def together(self, calls: Sequence[Coroutine[Any, Any, Any]]) -> None:
        async with trio.open_nursery() as nursery:
            for call in calls:
                nursery.start_soon(_finish, call)


class Asyncio:
    """Starts them in the order in which they were made."""

    def run(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(function())

    async def pause(self) -> None:
        await asyncio.sleep(0)

    async def together(self, calls: Sequence[Coroutine[Any, Any, Any]]) -> None:
        await asyncio.gather(*calls)


async def _finish(call: Coroutine[Any, Any, Any]) -> None:
    await call


@pytest.fixture(params=[Trio(), Asyncio()], ids=["trio", "asyncio"])
def loop(request: pytest.FixtureRequest) -> Loop:
    found: Loop = request.param
    return found


class Diary:
    """Jobs that say when they begin and end."""

    def __init__(self, loop: Loop) -> None:
        self.said: list[str] = []
        self._loop = loop

    async def job(self, name: str) -> str:
        self.said.append(f"{name} begins")
        for _ in range(3):
            await self._loop.pause()
        self.said.append(f"{name} ends")
        return name

    def of(self, *names: str) -> list[str]:
        return [f"{name} {what}" for name in names for what in ("begins", "ends")]


@pytest.mark.parametrize("started", [range(6), range(5, -1, -1), [3, 0, 5, 1, 4, 2]], ids=["in order", "back", "mixed"])
def test_calls_run_in_the_order_in_which_they_were_made(loop: Loop, started: Sequence[int]) -> None:
    diary = Diary(loop)

    async def body() -> None:
        turns = Turns()
        calls = [turns.run(partial(diary.job, str(number))) for number in range(6)]
        await loop.together([calls[number] for number in started])

    loop.run(body)
    assert diary.said == diary.of(*"012345")


def test_a_call_answers_and_fails_by_itself(loop: Loop) -> None:
    async def body() -> None:
        turns = Turns()
        with pytest.raises(ZeroDivisionError):
            await turns.run(_failing)
        assert await turns.run(partial(Diary(loop).job, "next")) == "next"

    loop.run(body)


async def _failing() -> None:
    raise ZeroDivisionError


def test_who_fails_lets_the_next_one_run(loop: Loop) -> None:
    diary = Diary(loop)

    async def body() -> None:
        turns = Turns()
        calls = [turns.run(partial(diary.job, "a")), turns.run(_failing), turns.run(partial(diary.job, "b"))]
        await loop.together([calls[0], _ignoring(calls[1]), calls[2]])

    loop.run(body)
    assert diary.said == diary.of("a", "b")


async def _ignoring(call: Coroutine[Any, Any, Any]) -> None:
    with pytest.raises(ZeroDivisionError):
        await call


def test_a_call_that_nobody_awaits_holds_up_nobody(loop: Loop) -> None:
    diary = Diary(loop)

    async def body() -> None:
        turns = Turns()
        forgotten = turns.run(partial(diary.job, "late"))
        calls = [turns.run(partial(diary.job, name)) for name in "ab"]
        await loop.together(calls)
        await forgotten
        turns.run(partial(diary.job, "never")).close()
        await turns.run(partial(diary.job, "last"))

    loop.run(body)
    assert diary.said == diary.of("a", "b", "late", "last")


@pytest.mark.parametrize("victim", range(3))
def test_a_cancelled_call_leaves_the_queue_whole_on_trio(victim: int) -> None:
    ran: list[int] = []

    async def body() -> None:
        turns, gate = Turns(), trio.Event()
        scopes = [trio.CancelScope() for _ in range(4)]

        async def job(number: int) -> None:
            await gate.wait()
            ran.append(number)

        async def call(number: int, made: Coroutine[Any, Any, None]) -> None:
            with scopes[number]:
                await made

        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(call, number, turns.run(partial(job, number)))
            await trio.testing.wait_all_tasks_blocked()
            scopes[victim].cancel()
            await trio.testing.wait_all_tasks_blocked()
            gate.set()

    trio.run(body)
    assert ran == [number for number in range(4) if number != victim]


@pytest.mark.parametrize("begun", [False, True], ids=["before it begins", "while it waits"])
@pytest.mark.parametrize("victim", range(3))
def test_a_cancelled_task_leaves_the_queue_whole_on_asyncio(victim: int, begun: bool) -> None:
    ran: list[int] = []

    async def body() -> None:
        turns, gate = Turns(), asyncio.Event()

        async def job(number: int) -> None:
            await gate.wait()
            ran.append(number)

        tasks = [asyncio.ensure_future(turns.run(partial(job, number))) for number in range(4)]
        if begun:
            await asyncio.sleep(0)
        tasks[victim].cancel()
        gate.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[victim], asyncio.CancelledError)

    asyncio.run(body())
    assert ran == [number for number in range(4) if number != victim]


def test_without_a_queue_no_event_loop_is_needed() -> None:
    call = Turns().run(partial(_answer, 7))
    with pytest.raises(StopIteration) as done:
        call.send(None)
    assert done.value.value == 7


async def _answer(value: int) -> int:
    return value
