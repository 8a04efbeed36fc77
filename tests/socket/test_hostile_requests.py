"""Spec 3.2, docs/ctx-socket.md: whatever is asked is answered, by frames that say what is wrong, and nothing breaks.

That nothing was an internal error is claimed by the mount's log at the end (``running_mount``).
"""

import errno
import json
import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.mounting import RunningMount
from tests.people import ALICE
from tests.socket.client import connected

ODD: list[Any] = [
    *("", ".", "../x", "/", "/etc", "//", "index", "echo", "default", "a.sock", "a.d", "x" * 65, "é", "\ud800", "a\0b"),
    *("private", "shared", "temp", "team", "model:acme/big", "1001", "-1", "01", "1e9", "ctx-" + "0" * 32, "a\nb"),
    *(2**53, 2**63, 2**64, -1, 1.5, 1e308, [], [1], {}, {"a": {"b": []}}),
    *([["messages", 1]], [["events", -1]], [{"session": "x"}]),
]
FIELDS = (
    *("id", "client", "queue", "input", "session", "scope", "cwd", "space", "after", "home", "agent", "entries"),
    *("expected_n", "created_at", "title", "origin", "uuid", "sessions", "text", "limit", "later"),
)
OPERATIONS = {
    "agent/echo.sock": ("send", "resume", "cancel", "ping", "sing"),
    "agent/ctx.sock": ("ping", "status", "import", "import-many", "search", "doctor", "sing"),
}
VALUES = st.one_of(
    st.sampled_from(ODD), st.none(), st.booleans(), st.integers(), st.text(max_size=70), st.lists(st.sampled_from(ODD))
)
REQUESTS = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=7)
NEEDED = {"id": "c1", "input": "x", "agent": "echo", "session": "asked", "entries": [], "sessions": [], "text": "x"}
"""What makes a request a valid one, but for what is odd in it."""


@pytest.mark.parametrize("path", OPERATIONS)
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data(), fields=REQUESTS)
def test_whatever_is_asked_is_answered(served: RunningMount, path: str, data: st.DataObject, fields: Any) -> None:
    operation = data.draw(st.sampled_from(OPERATIONS[path]))
    known = NEEDED if data.draw(st.booleans()) else {}
    with connected(served.path / path, ALICE) as client:
        client.send(json.dumps({**known, **fields, "op": operation}).encode() + b"\n")
        client.socket.shutdown(socket.SHUT_WR)
        frames = client.frames()
    assert frames
    for frame in frames:
        if frame["type"] == "error":
            assert frame["code"] in errno.errorcode.values()
            assert "internal error" not in frame["message"]


REFUSED: dict[str, tuple[bytes, dict[str, str]]] = {
    "a field of another type": (b'{"op":"send","id":"c1","input":1}', {"id": "c1"}),
    "an op that is none": (b'{"op":"sing","id":"c1"}', {"id": "c1"}),
    "a NUL in its input": (b'{"op":"send","id":"c1","input":"a\\u0000b"}', {"id": "c1"}),
    "an id that is no name": (b'{"op":"send","id":"a/b","input":"x"}', {"id": "a/b"}),
    "an id that is no string": (b'{"op":"send","id":["c1"],"input":"x"}', {}),
    "an id that is no text": (b'{"op":"send","id":"\\ud800","input":"x"}', {}),
    "an endless id": (b'{"op":"send","id":"' + b"x" * 500_000 + b'","input":"x"}', {}),
    "no id": (b'{"op":"send","input":"x"}', {}),
    "no JSON": (b'{"op":"send","id":"c1"', {}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_says_the_id_where_there_is_one(served: RunningMount, what: str) -> None:
    raw, known = REFUSED[what]
    with connected(served.path / "agent/echo.sock", ALICE) as client:
        client.send(raw + b"\n")
        refusal = client.frame()
        assert refusal == {"code": "EINVAL", "message": refusal["message"], "type": "error", **known}
        assert client.ask("ping") == {"type": "pong"}
