"""How a client is told how far long work is (docs/ctx-socket.md): now and then, in between, and not if it is gone."""

from typing import Any

import pytest
import trio
import trio.testing

from ctxfs.ctx_socket.telling import PROGRESS_S, Telling


class Client:
    """Takes frames until it is gone."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.gone = False

    async def send(self, frame: Any) -> None:
        if self.gone:
            raise trio.BrokenResourceError
        self.frames.append(frame)


def told(pieces: list[float], client: Any) -> list[int]:
    """What pieces of work return that take so many seconds each, one after another."""
    done = [0]

    async def piece(seconds: float) -> int:
        await trio.sleep(seconds)
        done[0] += 1
        return done[0]

    async def work() -> list[int]:
        telling = Telling(client, lambda: {"done": done[0]})
        return [await telling.during(lambda seconds=seconds: piece(seconds)) for seconds in pieces]  # type: ignore[misc]

    return trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize(
    ("pieces", "frames"),
    [
        ([PROGRESS_S / 4], []),
        ([PROGRESS_S * 2.5], [0, 0]),
        ([PROGRESS_S * 0.3] * 5, [3]),
        ([PROGRESS_S * 0.3] * 8, [3, 6]),
    ],
)
def test_a_frame_now_and_then_however_the_work_is_cut(pieces: list[float], frames: list[int]) -> None:
    client = Client()
    assert told(pieces, client) == list(range(1, len(pieces) + 1))
    assert client.frames == [{"type": "progress", "done": done} for done in frames]


def test_who_is_gone_ends_the_work() -> None:
    client = Client()
    client.gone = True
    with pytest.raises(trio.BrokenResourceError):
        told([PROGRESS_S * 100], client)


def test_what_the_work_raises_is_raised() -> None:
    async def fail() -> None:
        raise KeyError("x")

    async def work() -> None:
        await Telling(Client(), dict).during(fail)  # type: ignore[arg-type]

    with pytest.raises(KeyError):
        trio.run(work)
