"""Frames that are split, cut short, too long or no request, and answers that are too long (spec 6.3; notes 1.1)."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.checkpoints import wire
from tests.checkpointing import MIB, CheckpointDaemon, checkpoint_daemon, raw_exchange, receive_all
from tests.mounting import PATIENCE_S, wait_until

CONFIG = wire.frame(wire.encode_request(wire.Config()))


def response_of(received: bytes) -> wire.Response:
    assert int.from_bytes(received[:4], "little") == len(received) - 4
    return wire.decode_response(received[4:])


def connected(daemon: CheckpointDaemon) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    connection.connect(str(daemon.socket))
    return connection


def u32(number: int) -> bytes:
    return number.to_bytes(4, "little")


def test_a_frame_byte_by_byte(copying: CheckpointDaemon) -> None:
    with connected(copying) as connection:
        for byte in CONFIG:
            connection.sendall(bytes((byte,)))
        assert isinstance(response_of(receive_all(connection)), wire.ConfigOk)


def test_bytes_after_a_request_in_its_frame_are_accepted(copying: CheckpointDaemon) -> None:
    payload = wire.encode_request(wire.Config()) + b"and more"
    assert isinstance(response_of(raw_exchange(copying.socket, wire.frame(payload))), wire.ConfigOk)


def test_a_second_frame_is_not_read(copying: CheckpointDaemon) -> None:
    with connected(copying) as connection:
        connection.sendall(CONFIG + CONFIG)
        received = bytearray()
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(MIB):
                received += chunk
    assert isinstance(response_of(bytes(received)), wire.ConfigOk)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x0c\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\0" + b"\xff" * 8, b"\0\0\0\0\1\0\0\0\0\0\0\0\xff", b"\0"],
)
def test_what_is_no_request_is_an_error(copying: CheckpointDaemon, payload: bytes) -> None:
    answer = response_of(raw_exchange(copying.socket, wire.frame(payload)))
    assert isinstance(answer, wire.Error) and answer.code is wire.ErrorCode.InternalError


@pytest.mark.parametrize("sent", [b"", b"\4", b"\4\0\0\0", b"\4\0\0\0\6\0", CONFIG[:-1]])
def test_what_ends_too_early_is_not_answered(copying: CheckpointDaemon, sent: bytes) -> None:
    assert raw_exchange(copying.socket, sent) == b""


@pytest.mark.parametrize("announced", [16 * MIB + 1, 0xFFFFFFFF])
def test_an_oversized_frame_is_refused_at_once(copying: CheckpointDaemon, announced: int) -> None:
    with connected(copying) as connection:
        connection.sendall(u32(announced))
        answer = response_of(receive_all(connection))
    assert answer == wire.Error(wire.ErrorCode.InternalError, f"Frame too large: {announced} bytes (max 16777216)")


def test_a_frame_of_exactly_16_mib_is_read(copying: CheckpointDaemon) -> None:
    request = wire.encode_request(wire.List("x"))
    sent = u32(16 * MIB) + request + bytes(16 * MIB - len(request))
    assert isinstance(response_of(raw_exchange(copying.socket, sent)), wire.Error)


def test_a_silent_connection_stays_open(copying: CheckpointDaemon) -> None:
    with connected(copying) as silent:
        copying.expect(wire.ConfigOk, wire.Config())
        silent.sendall(CONFIG)
        assert isinstance(response_of(receive_all(silent)), wire.ConfigOk)


def test_two_hundred_connections_at_once(copying: CheckpointDaemon) -> None:
    connections = [connected(copying) for _ in range(200)]
    for connection in connections:
        connection.sendall(CONFIG)
    for connection in connections:
        assert isinstance(response_of(receive_all(connection)), wire.ConfigOk)
        connection.close()


def test_a_client_that_leaves_before_the_answer_is_obeyed(copying: CheckpointDaemon) -> None:
    workspace = copying.new_workspace()
    copying.init(workspace)
    with connected(copying) as connection:
        connection.sendall(wire.frame(wire.encode_request(wire.Checkpoint(str(workspace), "one"))))
    wait_until(lambda: copying.ids(workspace) == ["one"], "the snapshot")


def test_a_request_goes_on_beside_a_slow_one(copying: CheckpointDaemon) -> None:
    """A diff of a big tree reads for a while; nobody waits for it but who asks about that workspace."""
    workspace, other = copying.new_workspace(), copying.new_workspace()
    for number in range(500):
        (workspace / str(number)).write_bytes(bytes(20_000))
    answers: list[wire.Response] = []
    slow = threading.Thread(target=lambda: answers.append(copying.ask(wire.Checkpoint(str(workspace), "one"))))
    slow.start()
    copying.checkpoint(other, "one")
    slow.join()
    assert answers == [wire.CheckpointOk("one")]


@pytest.fixture(scope="module")
def crowded() -> Iterator[CheckpointDaemon]:
    """A daemon with a workspace that has so many records that a list of them is just, or not quite, too long."""
    with checkpoint_daemon("copy") as daemon:
        yield daemon


def grow(daemon: CheckpointDaemon, workspace: Path, count: int, message: str) -> None:
    """Gives a workspace ``count`` records of snapshots that are missing, while the daemon is away."""
    ws_id = daemon.init(workspace)
    assert daemon.stop() == 0
    file = daemon.state / "indexes" / ws_id / "index.json"
    index = json.loads(file.read_text())
    record = {"message": message, "pinned": False, "created_at": "2026-01-01T00:00:00Z", "missing": True}
    index["snapshots"] = {f"s{number:06}": record for number in range(count)}
    file.write_text(json.dumps(index))
    daemon.start()


def test_answers_at_and_over_the_limit(crowded: CheckpointDaemon) -> None:
    workspace, count = crowded.new_workspace(), 1001
    space = (16 * MIB - 12) // count
    message = "x" * (space - len(wire.encode_response(wire.ListOk((entry(workspace, ""),)))) + 12)
    grow(crowded, workspace, count, message)
    answer = crowded.expect(wire.ListOk, wire.List(str(workspace)))
    assert len(answer.snapshots) == count
    assert 16 * MIB - count < len(wire.encode_response(answer)) <= 16 * MIB
    assert crowded.expect(wire.HealthAdvisoryOk, wire.HealthAdvisory()).over_limit_workspace_count == 1
    grow(crowded, workspace, count + 1, message)
    crowded.refuses("InternalError", "Frame too large", wire.List(str(workspace)))


def entry(workspace: Path, message: str) -> wire.SnapshotEntry:
    meta = wire.SnapshotMeta(message, None, False, "2026-01-01T00:00:00Z", True)
    return wire.SnapshotEntry("s000000", str(workspace), meta)


def text(value: str) -> bytes:
    raw = value.encode()
    return len(raw).to_bytes(8, "little") + raw


def some(value: bytes) -> bytes:
    return b"\1" + value


NONE, NO, YES = b"\0", b"\0", b"\1"


def conversation(path: str) -> list[tuple[str, bytes, int, bytes]]:
    """Every request as a client of release 0.3.2 sends it, and its answer: the variant, and what is in it."""
    name = text(path)
    return [
        ("init", u32(0) + name, 0, b"ws-"),
        ("checkpoint", u32(1) + name + text("one") + NONE + NONE + NO, 1, text("one")),
        ("same id", u32(1) + name + text("one") + NONE + NONE + NO, 4, u32(8)),
        (
            "all",
            u32(1) + name + text("of this alone") + some(text("why")) + some(text('{"b":1,"a":"é"}')) + YES,
            1,
            text("of this alone"),
        ),
        ("list", u32(4) + some(name) + some(text("json")), 5, text('{"a":"é","b":1}')),
        ("list all", u32(4) + NONE + NONE, 5, text("of this alone")),
        ("diff", u32(5) + name + text("one") + text("of this alone"), 6, bytes(8)),
        ("status", u32(6) + some(name), 7, name),
        ("status of all", u32(6) + NONE, 7, name),
        ("rollback", u32(2) + name + text("on"), 2, text("one")),
        ("pinned", u32(3) + some(name) + text("of this alone") + NO, 4, u32(6)),
        ("forced", u32(3) + NONE + text("of this alone") + YES, 3, text("of this alone")),
        ("cleanup", u32(7) + name + some(u32(20)), 8, bytes(8)),
        ("cleanup by default", u32(7) + name + NONE, 8, bytes(8)),
        ("config", u32(8), 9, text("info")),
        ("reload", u32(9), 10, b""),
        ("recover", u32(10) + name, 12, name),
        ("unknown now", u32(4) + some(name) + NONE, 4, u32(0)),
    ]


def test_a_client_of_release_0_3_2(copying: CheckpointDaemon) -> None:
    """Byte for byte, without our codec; as that program does, each request is followed by one for advice."""
    for what, request, index, inside in conversation(str(copying.new_workspace())):
        answer = raw_exchange(copying.socket, u32(len(request)) + request)
        assert answer[:8] == u32(len(answer) - 4) + u32(index), (what, answer)
        assert inside in answer[8:], (what, answer)
        advice = raw_exchange(copying.socket, bytes.fromhex("040000000b000000"))
        assert advice[:12] == u32(24) + u32(13) + u32(0)
