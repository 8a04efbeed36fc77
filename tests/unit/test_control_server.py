"""The daemon's control socket answers everybody, whatever somebody sends and whatever a handler raises (spec 4.6)."""

import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from backend.errors import StoreFailed
from ctxfs import control_server

GOOD = b'{"op":"good"}'


def raising(error: Exception) -> control_server.Handler:
    async def handler(_: Mapping[str, Any]) -> Mapping[str, Any]:
        raise error

    return handler


def answering(answer: Mapping[str, Any]) -> control_server.Handler:
    async def handler(_: Mapping[str, Any]) -> Mapping[str, Any]:
        return answer

    return handler


HANDLERS = {
    "good": answering({"fine": True}),
    "disk": raising(StoreFailed("the disk failed")),
    "late": raising(TimeoutError()),
    "system": raising(OSError(5, "Input/output error")),
    "odd name": raising(OSError(5, "Input/output error", "/\udcff")),
    "bug": raising(KeyError("x")),
    "deep": raising(RecursionError()),
    "no JSON": answering({"text": "\udcff"}),
}


def on_socket(directory: Path, client: Callable[[trio.SocketStream], Awaitable[None]]) -> None:
    """Runs a client of a server with ``HANDLERS``; afterwards the server still answers another one."""

    async def main() -> None:
        listener = control_server.listen(directory / "socket")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(control_server.serve, listener, HANDLERS)
            for one in (client, ask_good):
                async with await trio.open_unix_socket(directory / "socket") as stream:
                    await one(stream)
            nursery.cancel_scope.cancel()

    trio.run(main)


async def ask(stream: trio.SocketStream, line: bytes) -> dict[str, Any]:
    await stream.send_all(line + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        answer += (more := await stream.receive_some())
        assert more, "the connection was closed"
    return dict(json.loads(answer))


async def ask_good(stream: trio.SocketStream) -> None:
    assert await ask(stream, GOOD) == {"fine": True}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_socket_is_its_owner_s_alone_from_its_first_moment_and_no_umask_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    modes: list[int] = []

    class Watched(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            modes.append(stat.S_IMODE(os.stat(address).st_mode))

    async def listen() -> None:
        await control_server.listen(tmp_path / "socket").aclose()

    before = os.umask(umask)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(socket, "socket", Watched)
            patched.setattr(os, "umask", lambda _: pytest.fail("the umask is every thread's"))
            trio.run(listen)
    finally:
        os.umask(before)
    assert modes == [0o600]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "not a JSON object"),
        (b"\xff\x00", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b"[" * 2000, "not a JSON object"),
        (b'{"op":' * 600, "not a JSON object"),
        (b"{}", "unknown op None"),
        (b'{"op":{}}', "unknown op"),
        (b'{"op":"never"}', "unknown op 'never'"),
        (b'{"op":"disk"}', "the disk failed"),
        (b'{"op":"late"}', "timed out"),
        (b'{"op":"system"}', "Input/output error"),
        (b'{"op":"odd name"}', "Input/output error"),
        (b'{"op":"bug"}', "internal error: KeyError"),
        (b'{"op":"deep"}', "internal error: RecursionError"),
        (b'{"op":"no JSON"}', "internal error: UnicodeEncodeError"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused_and_the_next_one_answered(
    tmp_path: Path, line: bytes, words: str
) -> None:
    async def client(stream: trio.SocketStream) -> None:
        assert words in (await ask(stream, line))["error"]
        await ask_good(stream)

    on_socket(tmp_path, client)


@pytest.mark.parametrize("sent", [b"", GOOD, GOOD + b"\n", b"x" * 100_000])
def test_a_client_that_goes_away_ends_only_its_own_connection(tmp_path: Path, sent: bytes) -> None:
    async def client(stream: trio.SocketStream) -> None:
        await stream.send_all(sent)

    on_socket(tmp_path, client)
