"""Calls that wait for the disk run beside the loop, which goes on."""

import threading
from collections.abc import Callable

import pytest

from ctxfs.files.passthrough_blocking import BlockingCalls
from ctxfs.loop import Loop
from tests.mounting import PATIENCE_S


def run_both(loop: Loop, calls: BlockingCalls, first: Callable[[], int], second: Callable[[], int]) -> list[int]:
    """The results of two calls, in the order in which they come."""
    results: list[int] = []

    async def wait_for(call: Callable[[], int]) -> None:
        results.append(await calls(call))

    async def main() -> None:
        loop.start(wait_for(first))
        loop.start(wait_for(second))

    loop.run(main)
    calls.close()
    return results


def test_a_slow_call_holds_up_nobody() -> None:
    loop = Loop()
    done = threading.Event()

    def slow() -> int:
        assert done.wait(PATIENCE_S)
        return 1

    def quick() -> int:
        done.set()
        return 2

    assert sorted(run_both(loop, BlockingCalls(loop), slow, quick)) == [1, 2]


def test_what_a_call_raises_reaches_its_handler() -> None:
    loop = Loop()
    calls = BlockingCalls(loop)

    def full() -> int:
        raise OSError(28, "No space left on device")

    async def main() -> None:
        with pytest.raises(OSError, match="No space"):
            await calls(full)

    loop.run(main)
    calls.close()
