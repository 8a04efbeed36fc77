"""One epoll for all clients: a bug in what one of them is watched for is told, and ends no other watch."""

import socket
from collections.abc import Callable

import pytest
import trio

from ctxfs.sockets.lookout import Lookout


def buggy() -> bool:
    raise RuntimeError("planted")


def watched(mine: tuple[Callable[[], bool], Callable[[], None]], close: bool) -> tuple[list[str], bytes]:
    """What was told of bugs while a client with these callbacks sent something or left, and what another one said."""

    async def main() -> tuple[list[str], bytes]:
        told, heard = list[str](), list[bytes]()
        failed, answered = trio.Event(), trio.Event()

        def fails(error: Exception) -> None:
            told.append(str(error))
            failed.set()

        def hears() -> bool:
            heard.append(others.recv(10))
            answered.set()
            return True

        ours, client = socket.socketpair()
        others, another = socket.socketpair()
        lookout = Lookout(fails)
        with ours, client, others, another:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lookout.run)
                with lookout.watching(ours.fileno(), *mine), lookout.watching(others.fileno(), hears, lambda: None):
                    client.close() if close else client.send(b"x")
                    await failed.wait()
                    another.send(b"hello")
                    await answered.wait()
                nursery.cancel_scope.cancel()
        lookout.close()
        return told, b"".join(heard)

    return trio.run(main)


@pytest.mark.parametrize("close", [False, True], ids=["what it sent", "its end"])
def test_a_bug_in_one_conversation_is_no_other_ones(close: bool) -> None:
    assert watched((buggy, buggy), close) == (["planted"], b"hello")  # type: ignore[arg-type]
