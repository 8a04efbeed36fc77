"""What travels (spec 3.2): frames of at most 1 MiB, strict JSON, one answer a request, whatever is sent."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from ctxfs.sockets.frames import MAX_FRAME
from ctxfs.sockets.server import MOST_OF_ONE_USER
from tests.mounting import wait_until
from tests.people import ALICE, BOB
from tests.socket.client import answer, connected, request

PONG = {"type": "pong"}
PING = request("ping")


def padded(size: int) -> bytes:
    """A ping of so many bytes with its newline."""
    frame = request("ping", pad="")
    return frame[:-2] + b"x" * (size - len(frame) - 1) + b'"}\n'


REFUSED = {
    "not JSON": (b"ping\n", "EINVAL"),
    "no object": (b'["ping"]\n', "EINVAL"),
    "an empty line": (b"\n", "EINVAL"),
    "no op": (b"{}\n", "EINVAL"),
    "another op": (b'{"op":"sing"}\n', "EINVAL"),
    "an op of another type": (b'{"op":1}\n', "EINVAL"),
    "a field of another type": (b'{"op":"status","space":1}\n', "EINVAL"),
    "a key twice": (b'{"op":"ping","op":"status"}\n', "EINVAL"),
    "a NUL": (b'{"op":"ping","x":"\\u0000"}\n', "EINVAL"),
    "half a pair": (b'{"op":"ping","x":"\\ud83d"}\n', "EINVAL"),
    "not UTF-8": (b'{"op":"ping","x":"\xff"}\n', "EINVAL"),
    "a carriage return": (b'{"op":\r"ping"}\n', "EINVAL"),
    "two carriage returns": (b'{"op":"ping"}\r\r\n', "EINVAL"),
    "two deep": (b'{"op":"ping","x":' + b"[" * 5000 + b"]" * 5000 + b"}\n", "EINVAL"),
    "a byte too long": (padded(MAX_FRAME + 1), "EMSGSIZE"),
    "much too long": (padded(5 * MAX_FRAME), "EMSGSIZE"),
    "a huge number": (b'{"op":"status","home":' + b"9" * 400 + b"}\n", "EINVAL"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_frame_is_answered_and_the_next_one_is_served(ctx_sock: Path, name: str) -> None:
    data, code = REFUSED[name]
    with connected(ctx_sock) as client:
        client.send(data + PING + b"\n")
        refusal = client.frame()
        assert {**refusal, "message": ""} == {"code": code, "message": "", "type": "error"}
        assert client.frame() == PONG


def test_a_frame_may_have_a_mebibyte_with_its_newline(ctx_sock: Path) -> None:
    with connected(ctx_sock) as client:
        client.send(padded(MAX_FRAME))
        assert client.frame() == PONG


@pytest.mark.parametrize("size", [1, 7, 100])
def test_frames_may_come_in_pieces_and_several_at_once(ctx_sock: Path, size: int) -> None:
    data = (PING + b"\n") * 20
    with connected(ctx_sock) as client:
        for at in range(0, len(data), size):
            client.send(data[at : at + size])
        assert [client.frame() for _ in range(20)] == [PONG] * 20


@pytest.mark.parametrize(
    ("last", "code"),
    [(PING, None), (PING + b"\r", None), (PING[:-1], "EINVAL"), (padded(MAX_FRAME + 2)[:-1], "EMSGSIZE")],
)
def test_the_last_frame_may_have_no_newline(ctx_sock: Path, last: bytes, code: str | None) -> None:
    with connected(ctx_sock) as client:
        client.send(PING + b"\r\n" + last)
        client.socket.shutdown(1)
        assert client.frame() == PONG
        assert client.frame().get("code") == code
        assert client.frame() == {}


def test_who_stops_sending_still_gets_all_answers(ctx_sock: Path) -> None:
    with connected(ctx_sock) as client:
        client.send((PING + b"\n") * 3)
        client.socket.shutdown(1)
        assert [client.frame() for _ in range(4)] == [PONG, PONG, PONG, {}]


def test_who_does_not_read_is_not_read_from(ctx_sock: Path) -> None:
    """A client that only sends blocks; others are served, and the daemon holds no more than a frame of it."""
    with connected(ctx_sock) as greedy, connected(ctx_sock) as other:
        greedy.socket.settimeout(0.5)
        sent, burst = 0, (PING + b"\n") * 1000
        with pytest.raises(TimeoutError):
            while sent < 256 << 20:
                greedy.send(burst)
                sent += len(burst)
        assert other.ask("ping") == PONG


def test_unknown_fields_are_ignored(ctx_sock: Path) -> None:
    with connected(ctx_sock) as client:
        assert client.ask("ping", later={"as": ["you", "like"]}) == PONG


def test_one_user_cannot_take_all_connections(ctx_sock: Path) -> None:
    refused, end = ALICE.does(crowd, ctx_sock, MOST_OF_ONE_USER)
    assert (refused["code"], end) == ("EAGAIN", {})
    assert BOB.does(answer, ctx_sock, "ping") == PONG
    wait_until(lambda: ALICE.does(answer, ctx_sock, "ping") == PONG, "the end of her connections")


def crowd(path: Path, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What one more than ``count`` connections is told."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            assert stack.enter_context(connected(path)).ask("ping") == PONG
        one_more = stack.enter_context(connected(path))
        return one_more.frame(), one_more.frame()
