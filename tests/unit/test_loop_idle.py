"""What runs between requests, and what wakes a loop that waits for them."""

import threading
from pathlib import Path

import pytest

from ctxfs.loop import BURST, ClosedResourceError, Future, Loop
from tests.mounting import wait_until
from tests.unit.loop_device import Device, worker


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
