"""``doctor``: the peer's own, frame by frame (spec 1.9, docs/ctx-socket.md)."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.mounting import RunningMount
from tests.people import ALICE, BOB, Person
from tests.socket.client import connected


def frames(path: Path, **fields: Any) -> list[dict[str, Any]]:
    found = []
    with connected(path) as client:
        frame = client.ask("doctor", **fields)
        while frame["type"] not in ("end", "error"):
            found.append(frame)
            frame = client.frame()
    return [*found, frame]


@pytest.fixture(scope="module", autouse=True)
def alices(served: RunningMount) -> Path:
    agent = served.path / "home/1001/agent/coder"
    ALICE.does(agent.mkdir)
    for name in ("one", "two"):
        ALICE.does((agent / "session" / name).mkdir)
        ALICE.does((agent / "session" / name / "messages.jsonl").write_text, '{"role":"user","content":"x"}\n')
    return agent


def test_a_home_is_read_for_its_user_alone(ctx_sock: Path) -> None:
    [end] = ALICE.does(frames, ctx_sock)
    assert end == {"type": "end", "sessions": 2, "entries": 2, "bytes": 60, "faults": 0}
    assert [frame["code"] for frame in BOB.does(frames, ctx_sock, home=1001)] == ["EACCES"]
    assert BOB.does(frames, ctx_sock)[-1]["sessions"] == 0
    assert frames(ctx_sock, home=1001)[-1]["sessions"] == 2


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"session": "one"}, "EINVAL"),
        ({"agent": "coder", "session": "../two"}, "EINVAL"),
        ({"agent": "coder", "session": "nothing"}, "ENOENT"),
        ({"agent": "nobody"}, "ENOENT"),
        ({"agent": ""}, "EINVAL"),
        ({"space": "nowhere"}, "ENOENT"),
        ({"agent": 7}, "EINVAL"),
    ],
)
def test_what_it_refuses(ctx_sock: Path, fields: dict[str, Any], code: str) -> None:
    assert [frame["code"] for frame in ALICE.does(frames, ctx_sock, **fields)] == [code]


def test_one_user_s_many_examinations_wait_for_each_other_and_not_for_another_s(ctx_sock: Path) -> None:
    """Clients that do not take their answers hold nothing that others need."""
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(connected(ctx_sock)).send(b'{"op":"doctor","home":1001}\n' * 50)
        assert ALICE.does(frames, ctx_sock)[-1]["sessions"] == 2
        assert Person(1234, 1234).does(frames, ctx_sock)[-1]["sessions"] == 0
