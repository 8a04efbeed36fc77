"""The client of ws-ckpt daemons against one that answers anything (spec 6.2)."""

import functools
import os
import socket
import tempfile
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from backend.checkpoints import errors, wire
from ctxfs.checkpoints.client import CheckpointClient, default_socket

Act = Callable[[trio.SocketStream], Awaitable[None]]
Ask = Callable[[CheckpointClient], Awaitable[Any]]

SHORT_S = 0.05


@pytest.fixture
def path() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="ctxfs-test-") as directory:
        yield f"{directory}/socket"


def asked(path: str, act: Act, ask: Ask, timeout: float = 5.0) -> Any:
    """What ``ask`` returns or raises while a daemon at ``path`` treats its connection as ``act`` says.

    Time passes only where both of them wait.
    """

    async def main() -> Any:
        result: Any = None
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        async with trio.open_nursery() as nursery:
            serve = functools.partial(trio.serve_listeners, act)
            nursery.start_soon(serve, [trio.SocketListener(trio.socket.from_stdlib_socket(listener))])
            try:
                result = await ask(CheckpointClient(path, timeout))
            except errors.CheckpointError as error:
                result = error
            nursery.cancel_scope.cancel()
        return result

    result = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    if isinstance(result, errors.CheckpointError):
        raise result
    return result


def answering(answer: bytes) -> Act:
    async def act(stream: trio.SocketStream) -> None:
        await stream.receive_some(4096)
        await stream.send_all(answer)
        await stream.aclose()

    return act


def framed(response: wire.Response) -> bytes:
    return wire.frame(wire.encode_response(response))


async def silent(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def hanging_up(stream: trio.SocketStream) -> None:
    await stream.aclose()


META = wire.SnapshotMeta("first", '{"n":1}', False, "2026-11-29T13:52:23.484690650Z", False)
LISTED = framed(wire.ListOk((wire.SnapshotEntry("s1", "/w", META),)))
REPORT = wire.StatusReport(3, (wire.WorkspaceInfo("ws-9dad1e", "/w", 2),), 10, 5)
CONFIG = wire.ConfigReport("/m", "/s", "info", False, wire.Count(20), 86400, 300, 30, 40.0)


@pytest.mark.parametrize(
    ("ask", "request_", "response", "result"),
    [
        (lambda c: c.init("/w"), wire.Init("/w"), wire.InitOk("ws-1"), "ws-1"),
        (
            lambda c: c.create("/w", "s1", "first", '{"n":1}', pin=True),
            wire.Checkpoint("/w", "s1", "first", '{"n":1}', True),
            wire.CheckpointOk("s1"),
            wire.CheckpointOk("s1"),
        ),
        (
            lambda c: c.checkpoint("/w", "s1"),
            wire.Checkpoint("/w", "s1", None, None, False),
            wire.CheckpointSkipped("Empty workspace, no snapshot created."),
            wire.CheckpointSkipped("Empty workspace, no snapshot created."),
        ),
        (
            lambda c: c.restore("/w", "s"),
            wire.Rollback("/w", "s"),
            wire.RollbackOk("ws-1", "s1"),
            wire.RollbackOk("ws-1", "s1"),
        ),
        (lambda c: c.delete(None, "s", force=True), wire.Delete(None, "s", True), wire.DeleteOk("s1"), "s1"),
        (
            lambda c: c.list("/w"),
            wire.List("/w", None),
            wire.ListOk((wire.SnapshotEntry("s1", "/w", META),)),
            (wire.SnapshotEntry("s1", "/w", META),),
        ),
        (
            lambda c: c.diff("/w", "a", "b"),
            wire.Diff("/w", "a", "b"),
            wire.DiffOk((wire.DiffEntry("f", wire.ChangeType.Added),)),
            (wire.DiffEntry("f", wire.ChangeType.Added),),
        ),
        (lambda c: c.status(), wire.Status(None), wire.StatusOk(REPORT), REPORT),
        (lambda c: c.cleanup("/w", 3), wire.Cleanup("/w", 3), wire.CleanupOk(("a", "b")), ("a", "b")),
        (lambda c: c.config(), wire.Config(), wire.ConfigOk(CONFIG), CONFIG),
        (lambda c: c.reload_config(), wire.ReloadConfig(), wire.ReloadConfigOk(), None),
        (lambda c: c.recover("/w"), wire.Recover("/w"), wire.RecoverOk("/w"), "/w"),
        (
            lambda c: c.health_advisory(),
            wire.HealthAdvisory(),
            wire.HealthAdvisoryOk(0, 1, 2),
            wire.HealthAdvisoryOk(0, 1, 2),
        ),
    ],
)
def test_every_request(path: str, ask: Ask, request_: wire.Request, response: wire.Response, result: object) -> None:
    received = bytearray()

    async def act(stream: trio.SocketStream) -> None:
        received.extend(await stream.receive_some(4096))
        for byte in framed(response):
            await stream.send_all(bytes((byte,)))

    assert asked(path, act, ask) == result
    assert wire.decode_request(bytes(received[4:])) == request_
    assert wire.payload_length(bytes(received[:4])) == len(received) - 4


@pytest.mark.parametrize("code", wire.ErrorCode, ids=lambda code: code.name)
def test_every_error_code_is_an_exception_with_the_daemons_text(path: str, code: wire.ErrorCode) -> None:
    with pytest.raises(errors.CheckpointError, match=r"^why$") as raised:
        asked(path, answering(framed(wire.Error(code, "why"))), lambda client: client.init("/w"))
    assert type(raised.value).__name__ == code.name and raised.value.code is code


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (hanging_up, errors.DaemonUnavailable, "without an answer|broke"),
        (answering(b""), errors.DaemonUnavailable, "without an answer|broke"),
        (answering(b"\x04\x00"), errors.ProtocolError, "ends in the middle"),
        (answering(b"\x04\x00\x00\x00"), errors.ProtocolError, "ends in the middle"),
        (answering(b"\x08\x00\x00\x00\x00\x00\x00\x00"), errors.ProtocolError, "ends in the middle"),
        (answering(b"\x00\x00\x00\x00"), errors.ProtocolError, "is none"),
        (answering(b"\x04\x00\x00\x00\x0e\x00\x00\x00"), errors.ProtocolError, "is none"),
        (answering(framed(wire.ReloadConfigOk())), errors.ProtocolError, "Init with a ReloadConfigOk"),
        (answering(((64 << 20) + 1).to_bytes(4, "little")), errors.ProtocolError, "max 67108864"),
        (answering(b"\xff\xff\xff\xff"), errors.ProtocolError, "max 67108864"),
        (answering(LISTED.replace(b'{"n":1}', b'{"n":1;')), errors.ProtocolError, "is none: not JSON"),
        (answering(LISTED.replace(b'{"n":1}', b"1234NaN")), errors.ProtocolError, "is none: not JSON"),
        (answering(LISTED.replace(b"2026-11-29T", b"2026-13-29T")), errors.ProtocolError, "is none: month"),
        (silent, errors.DaemonTimeout, r"did not answer within 0\.05 s"),
    ],
)
def test_what_is_no_answer(path: str, act: Act, error: type[Exception], words: str) -> None:
    timeout = SHORT_S if act is silent else 5.0
    tracemalloc.start()
    try:
        with pytest.raises(error, match=words):
            asked(path, act, lambda client: client.init("/w"), timeout)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_request_that_nobody_reads_times_out(path: str) -> None:
    with pytest.raises(errors.DaemonTimeout, match="take the request"):
        asked(path, silent, lambda client: client.init("x" * (4 << 20)), SHORT_S)


def test_a_large_answer_within_the_limit_is_read(path: str) -> None:
    removed = tuple("x" * 1_000_000 for _ in range(20))
    payload = wire.encode_response(wire.CleanupOk(removed))
    act = answering(len(payload).to_bytes(4, "little") + payload)
    assert asked(path, act, lambda client: client.cleanup("/w")) == removed


def test_no_socket(path: str) -> None:
    client = CheckpointClient(path)
    assert not client.is_available()
    with pytest.raises(errors.DaemonUnavailable, match="mountctl checkpointd"):
        trio.run(client.config)


def test_a_socket_that_nobody_listens_on(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as unheard:
        unheard.bind(path)
    assert CheckpointClient(path).is_available()
    with pytest.raises(errors.DaemonUnavailable, match="Connection refused"):
        trio.run(CheckpointClient(path).config)


@pytest.fixture
def full(path: str) -> Iterator[socket.socket]:
    """A listener at ``path`` on which a connection waits, and no other has a place."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as waiting:
        listener.bind(path)
        listener.listen(0)
        waiting.connect(path)
        yield listener


@pytest.mark.usefixtures("full")
def test_a_full_backlog_times_out(path: str) -> None:
    with pytest.raises(errors.DaemonTimeout, match=r"did not accept the connection within 0\.05 s"):
        trio.run(CheckpointClient(path, SHORT_S).config)


def test_a_place_in_a_full_backlog_is_waited_for(full: socket.socket, path: str) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                assert await CheckpointClient(path, 60.0).config() == CONFIG
                nursery.cancel_scope.cancel()

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(full))
            nursery.start_soon(trio.serve_listeners, answering(framed(wire.ConfigOk(CONFIG))), [listener])

    trio.run(main)


def test_the_socket_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WS_CKPT_SOCKET", raising=False)
    assert CheckpointClient().path == "/run/ws-ckpt/ws-ckpt.sock" == default_socket()
    monkeypatch.setenv("WS_CKPT_SOCKET", "/elsewhere")
    assert CheckpointClient().path == "/elsewhere"
    assert CheckpointClient(Path("/here")).path == os.fspath("/here")
