"""The FUSE thread's loop: parking, the lock, failures, futures from threads, idle between bursts, closing."""

import threading

import pytest

from ctxfs.loop import ClosedResourceError, Future, Loop
from tests.unit.loop_device import Device, worker


def test_run_ends_when_all_tasks_have(loop: Loop) -> None:
    steps: list[str] = []

    async def child() -> None:
        steps.append("child")

    async def main() -> None:
        async with loop.open_nursery() as nursery:
            nursery.start_soon(child)
        steps.append("main")

    loop.run(main)
    assert steps == ["main", "child"]


def test_a_parked_task_goes_on_with_the_value(loop: Loop) -> None:
    value: Future[int] = Future(loop)
    got: list[int] = []

    async def wait() -> None:
        got.append(await value)

    async def main() -> None:
        loop.start(wait())
        loop.start(wait())
        loop.call_soon_threadsafe(lambda: value.set(7))

    loop.run(main)
    assert got == [7, 7]


def test_a_future_that_is_set_already_parks_nobody(loop: Loop) -> None:
    value: Future[str] = Future(loop)
    value.set("there")
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    async def main() -> None:
        loop.start(other())
        order.append(await value)

    loop.run(main)
    assert order == ["there", "other"]


def test_a_failed_future_raises_in_all_who_wait(loop: Loop) -> None:
    value: Future[int] = Future(loop)
    caught: list[str] = []

    async def wait() -> None:
        try:
            await value
        except ValueError as error:
            caught.append(str(error))

    async def main() -> None:
        loop.start(wait())
        loop.start(wait())
        loop.call_soon_threadsafe(lambda: value.fail(ValueError("no")))

    loop.run(main)
    assert caught == ["no", "no"]


def test_what_a_task_raises_ends_run(loop: Loop) -> None:
    async def fail() -> None:
        raise ValueError("bug")

    async def main() -> None:
        loop.start(fail())

    with pytest.raises(ValueError, match="bug"):
        loop.run(main)


def test_what_main_raises_ends_run(loop: Loop) -> None:
    async def main() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.run(main)


def test_a_value_may_come_from_another_thread(loop: Loop) -> None:
    value: Future[int] = Future(loop)
    threads: list[int] = []

    async def main() -> None:
        worker = threading.Thread(target=lambda: loop.call_soon_threadsafe(lambda: settle(threading.get_ident())))
        worker.start()
        threads.append(await value)
        worker.join()

    def settle(ident: int) -> None:
        value.set(ident)

    loop.run(main)
    assert threads == [threading.get_ident()]


def test_the_current_task_has_its_name(loop: Loop) -> None:
    names: list[str] = []

    async def child() -> None:
        names.append(loop.current_task().name)

    async def main() -> None:
        async with loop.open_nursery() as nursery:
            nursery.start_soon(child, name="pyfuse-01")

    loop.run(main)
    assert names == ["pyfuse-01"]


def test_a_handler_that_awaits_nothing_keeps_its_task(loop: Loop, device: Device) -> None:
    """No hand-over: one worker serves all that is queued, however many wait for the lock."""
    names: list[str] = []
    device.send(10)
    work = worker(loop, device, 10, lambda _: None, names)

    async def main() -> None:
        for name in ("first", "second", "third"):
            loop.start(work(name))  # type: ignore[arg-type]

    loop.run(main)
    assert names == ["first"] * 10


def test_while_one_handler_is_parked_another_worker_reads_on(loop: Loop, device: Device) -> None:
    parked: Future[None] = Future(loop)
    names: list[str] = []
    device.send(3)

    def handle(number: int) -> object:
        if number == 1:
            return parked
        if number == 3:
            parked.set(None)
        return None

    work = worker(loop, device, 3, handle, names)

    async def main() -> None:
        loop.start(work("first"))  # type: ignore[arg-type]
        loop.start(work("second"))  # type: ignore[arg-type]

    loop.run(main)
    assert names == ["first", "second", "second"]


def test_the_lock_is_held_by_one_at_a_time(loop: Loop) -> None:
    lock = loop.Lock()
    inside: list[str] = []
    turn: Future[None] = Future(loop)

    async def enter(name: str) -> None:
        async with lock:
            inside.append(f"{name} in")
            await turn
            inside.append(f"{name} out")

    async def main() -> None:
        for name in ("a", "b", "c"):
            loop.start(enter(name))
        loop.call_soon_threadsafe(lambda: turn.set(None))

    loop.run(main)
    assert inside == ["a in", "a out", "b in", "b out", "c in", "c out"]


def test_the_lock_is_released_by_a_failure(loop: Loop) -> None:
    lock = loop.Lock()
    entered: list[str] = []

    async def fail() -> None:
        async with lock:
            raise ValueError

    async def main() -> None:
        with pytest.raises(ValueError):
            await fail()
        async with lock:
            entered.append("after")

    loop.run(main)
    assert entered == ["after"]


def test_it_has_all_that_pyfuse3_takes_of_trio(loop: Loop) -> None:
    assert loop.ClosedResourceError is ClosedResourceError
    assert loop.lowlevel.current_trio_token() is loop
    assert callable(loop.lowlevel.wait_readable)
    assert callable(loop.lowlevel.notify_closing)
    assert callable(loop.lowlevel.current_task)
