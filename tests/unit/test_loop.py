"""The FUSE thread's loop: parking, the lock, failures, futures from threads, idle between bursts, closing."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ctxfs.loop import BURST, ClosedResourceError, Future, Loop
from tests.mounting import wait_until


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def device() -> Iterator["Device"]:
    device = Device()
    yield device
    device.close()


class Device:
    """Stands in for /dev/fuse: one byte is one request."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)

    def send(self, count: int = 1) -> None:
        os.write(self._write, b"x" * count)

    def receive(self) -> None:
        assert os.read(self.fd, 1) == b"x"

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._write)


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


def worker(
    loop: Loop, device: Device, requests: int, handle: Callable[[int], object], names: list[str] | None = None
) -> Callable[..., object]:
    """A pyfuse3 worker: reads under the lock, handles without it. Any number of them share ``requests``."""
    lock = loop.Lock()
    left = [requests]

    async def work(name: str) -> None:
        while True:
            async with lock:
                if not left[0]:
                    return
                await loop.wait_readable(device.fd)
                device.receive()
                left[0] -= 1
                number = requests - left[0]
            if names is not None:
                names.append(name)
            awaitable = handle(number)
            if awaitable is not None:
                await awaitable  # type: ignore[misc]

    return work


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


def test_idle_runs_before_the_loop_waits(loop: Loop, device: Device) -> None:
    """What is queued by handlers is done together, once no request is waiting (group commit)."""
    queue: list[int] = []
    batches: list[list[int]] = []
    done: list[Future[None]] = []

    def commit() -> None:
        batches.append(queue.copy())
        queue.clear()
        for future in done:
            future.set(None)
        done.clear()

    def handle(number: int) -> object:
        if not queue:
            loop.when_idle(commit)
        queue.append(number)
        done.append(Future(loop))
        return done[-1]

    device.send(5)
    work = worker(loop, device, 5, handle)

    async def main() -> None:
        for name in "abcdef":
            loop.start(work(name))  # type: ignore[arg-type]

    loop.run(main)
    assert batches == [[1, 2, 3, 4, 5]]


def test_idle_runs_although_requests_keep_coming(loop: Loop, device: Device) -> None:
    served_at_idle: list[int] = []
    served = [0]

    def idle() -> None:
        served_at_idle.append(served[0])
        loop.when_idle(idle)

    def handle(_: int) -> object:
        served[0] += 1
        device.send()
        return None

    loop.when_idle(idle)
    device.send(1)
    work = worker(loop, device, 10 * BURST, handle)

    async def main() -> None:
        loop.start(work("only"))  # type: ignore[arg-type]

    loop.run(main)
    assert served[0] == 10 * BURST
    gaps = [after - before for before, after in zip([0, *served_at_idle], served_at_idle, strict=False)]
    assert max(gaps) <= BURST + 1


def test_idle_waits_for_requests_that_are_queued_while_other_tasks_run(loop: Loop, device: Device) -> None:
    """A worker that parks for others' sake does not cut a batch short."""
    read: list[int] = []
    at_idle: list[list[int]] = []

    async def other() -> None:
        return None

    def handle(number: int) -> object:
        read.append(number)
        if number == 1:
            loop.when_idle(lambda: at_idle.append(read.copy()))
        loop.start(other())
        return None

    device.send(5)
    work = worker(loop, device, 5, handle)

    async def main() -> None:
        loop.start(work("only"))  # type: ignore[arg-type]

    loop.run(main)
    assert at_idle == [[1, 2, 3, 4, 5]]


def test_calls_of_other_threads_are_made_although_requests_keep_coming(loop: Loop, device: Device) -> None:
    served = [0]
    at_call: list[int] = []

    def handle(number: int) -> object:
        served[0] = number
        device.send()
        if number == 4:
            caller = threading.Thread(target=lambda: loop.call_soon_threadsafe(lambda: at_call.append(served[0])))
            caller.start()
            caller.join()
        return None

    device.send(1)
    work = worker(loop, device, 100, handle)

    async def main() -> None:
        loop.start(work("only"))  # type: ignore[arg-type]

    loop.run(main)
    assert at_call == [4]


def test_another_thread_wakes_a_loop_that_waits_for_requests(loop: Loop, device: Device) -> None:
    state = Path(f"/proc/self/task/{threading.get_native_id()}/stat")

    def call_when_it_waits() -> None:
        wait_until(lambda: " S " in state.read_text(), "the loop waits")
        loop.call_soon_threadsafe(device.send)

    caller = threading.Thread(target=call_when_it_waits)
    device.send()
    work = worker(loop, device, 2, lambda number: caller.start() if number == 1 else None)

    async def main() -> None:
        loop.start(work("only"))  # type: ignore[arg-type]

    loop.run(main)
    caller.join()


def test_closing_ends_all_who_wait_for_requests(loop: Loop, device: Device) -> None:
    ended: list[str] = []
    lock = loop.Lock()

    async def work(name: str) -> None:
        try:
            async with lock:
                await loop.wait_readable(device.fd)
        except ClosedResourceError:
            ended.append(name)

    async def main() -> None:
        for name in ("a", "b", "c"):
            loop.start(work(name))
        loop.call_soon_threadsafe(lambda: loop.notify_closing(device.fd))

    loop.run(main)
    assert sorted(ended) == ["a", "b", "c"]


def test_closing_before_anybody_waits(loop: Loop, device: Device) -> None:
    async def main() -> None:
        loop.notify_closing(device.fd)
        with pytest.raises(ClosedResourceError):
            await loop.wait_readable(device.fd)

    loop.run(main)


def test_it_has_all_that_pyfuse3_takes_of_trio(loop: Loop) -> None:
    assert loop.ClosedResourceError is ClosedResourceError
    assert loop.lowlevel.current_trio_token() is loop
    assert callable(loop.lowlevel.wait_readable)
    assert callable(loop.lowlevel.notify_closing)
    assert callable(loop.lowlevel.current_task)
