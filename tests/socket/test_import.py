"""``import``: entries with their own times, all or none, by the rules of all lines (spec 1.9, 4.2)."""

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mounting import RunningMount
from tests.people import ALICE, BOB, Person, outcome
from tests.socket.client import Client, answer, connected

HELLO = b'{"role":"user","content":"hello"}'
DONE = b'{"type":"state","from":"idle","state":"done"}'
UUID = "0b5f6f0e-4c1d-4a57-9a0a-3d1f1a2b3c4d"
TIMES = [["messages", 1_700_000_000_123], ["events", 1_700_000_005_000]]

_agents = itertools.count(1)


class Agent:
    """An agent of Alice's."""

    def __init__(self, mount: RunningMount) -> None:
        self.name = f"imported{next(_agents)}"
        self.socket = mount.path / "agent/ctx.sock"
        self.sessions = mount.path / f"home/{ALICE.uid}/agent/{self.name}/session"
        ALICE.does(self.sessions.parent.mkdir)

    def imports(self, *lines: bytes, person: Person = ALICE, session: str = "s", **fields: Any) -> dict[str, Any]:
        fields = {"agent": self.name, "session": session, "entries": TIMES[: len(lines)]} | fields
        return person.does(answer, self.socket, "import", *lines, **fields)


@pytest.fixture
def agent(served: RunningMount) -> Agent:
    return Agent(served)


def test_entries_keep_their_times_and_bytes(agent: Agent) -> None:
    assert agent.imports(HELLO, DONE, created_at=1_600_000_000_999) == {"n": 2, "type": "imported"}
    session = agent.sessions / "s"
    assert (session / "messages.jsonl").read_bytes() == HELLO + b"\n"
    assert (session / "events.jsonl").read_bytes() == DONE + b"\n"
    values = {name: (session / name).read_text() for name in ("created_at", "updated_at", "state")}
    assert values == {"created_at": "1600000000\n", "updated_at": "1700000005\n", "state": "done\n"}
    assert session.stat().st_mtime_ns == 1_700_000_005_000_000_000
    assert (session.stat().st_uid, os.listdir(agent.sessions)) == (ALICE.uid, ["index", "s"])


def test_no_time_of_an_entry_makes_a_time_of_a_file_zero(agent: Agent) -> None:
    assert agent.imports(HELLO, entries=[["messages", 0]], created_at=0)["n"] == 1
    session = agent.sessions / "s"
    files = [session, *session.rglob("*")]
    assert [path.name for path in files if path.stat().st_mtime_ns <= 0] == []


def test_it_goes_on_where_it_was(agent: Agent) -> None:
    assert agent.imports(HELLO, expected_n=0)["n"] == 1
    assert agent.imports(HELLO, DONE, expected_n=1)["n"] == 3
    assert agent.imports(HELLO, expected_n=2)["code"] == "EAGAIN"
    assert agent.imports(HELLO, expected_n=1, session="other")["code"] == "ENOENT"
    assert os.getxattr(agent.sessions / "s", "user.ctx.n") == b"3"


def test_readers_see_it_at_once(agent: Agent) -> None:
    agent.imports(HELLO)
    path = agent.sessions / "s/messages.jsonl"
    before = path.stat()
    agent.imports(HELLO)
    after = path.stat()
    assert (after.st_size, path.read_bytes()) == (2 * before.st_size, (HELLO + b"\n") * 2)
    assert after.st_mtime_ns > before.st_mtime_ns


def test_many_sessions_get_their_lines_or_are_refused_each_on_its_own(agent: Agent) -> None:
    agent.imports(HELLO, session="old")
    one = {"entries": TIMES[:1]}
    parts = [
        {"session": "a", "entries": TIMES, "created_at": 1_600_000_000_000, "uuid": UUID},
        {"session": "bad", **one},
        {"session": "old", "expected_n": 7, **one},
        {"session": "old", "expected_n": 1, **one},
        {"session": "not a name", **one},
        {"session": "empty", "entries": [], "uuid": "x"},
    ]
    lines = (HELLO, DONE, b"hello", HELLO, HELLO, HELLO)
    found = ALICE.does(answer, agent.socket, "import-many", *lines, agent=agent.name, sessions=parts)
    assert [result.get("n", result.get("code")) for result in found["sessions"]] == [
        *(2, "EINVAL", "EAGAIN", 2, "EINVAL", "EINVAL")
    ]
    assert sorted(os.listdir(agent.sessions)) == ["a", "index", "old"]
    assert (agent.sessions / "a/events.jsonl").read_bytes() == DONE + b"\n"
    assert (agent.sessions / "old/messages.jsonl").read_bytes() == (HELLO + b"\n") * 2


def test_a_uuid_is_mapped_and_seen_at_once(agent: Agent) -> None:
    path = agent.sessions / f"index/by-uuid/{UUID}"
    assert not path.exists()
    for session in ("first", "second"):
        agent.imports(HELLO, session=session, uuid=UUID)
        assert (path.read_text(), os.listdir(path.parent)) == (f"{session}\n", [UUID])


@pytest.mark.parametrize(
    ("sessions", "code"),
    [([{"session": "s"}], "EINVAL"), ([{"session": "s", "entries": []}] * 65, "EINVAL"), ("s", "EINVAL"), ([], None)],
)
def test_what_many_is_not(agent: Agent, sessions: Any, code: str | None) -> None:
    assert ALICE.does(answer, agent.socket, "import-many", agent=agent.name, sessions=sessions).get("code") == code


def test_an_agent_is_not_made(agent: Agent) -> None:
    assert agent.imports(HELLO, agent="nobody")["code"] == "ENOENT"


BAD = {
    "no JSON": (HELLO, b"hello"),
    "an event among the messages": (DONE, DONE),
    "half a pair": (HELLO, b'{"type":"error","run":"r","code":"EIO","message":"\\ud83d"}'),
    "another's cut": (HELLO, b'{"type":"cut","before":7,"summary":[],"reason":"r"}'),
}


@pytest.mark.parametrize("lines", BAD.values(), ids=BAD)
def test_one_bad_line_and_nothing_is_stored(agent: Agent, lines: tuple[bytes, bytes]) -> None:
    agent.imports(HELLO)
    with connected(agent.socket) as client:
        fields = {"home": ALICE.uid, "agent": agent.name, "session": "s", "entries": TIMES}
        assert client.ask("import", *lines, **fields)["code"] == "EINVAL"
        assert client.ask("ping") == {"type": "pong"}
    assert os.getxattr(agent.sessions / "s", "user.ctx.n") == b"1"


REFUSED: dict[str, dict[str, Any]] = {
    "a name that leads elsewhere": {"session": "../s"},
    "the index": {"session": "index"},
    "no name": {"session": ""},
    "an agent that is none": {"agent": "a/b"},
    "the agent ctx": {"agent": "ctx"},
    "a stream that is none": {"entries": [["latest", 1]]},
    "a time before all": {"entries": [["messages", -1]]},
    "a time that is none": {"entries": [["messages", 1.5]]},
    "a home that is none": {"home": -1},
    "two places": {"home": 1001, "space": "x"},
    "a space that leads elsewhere": {"space": "../home/1001"},
}


@pytest.mark.parametrize("fields", REFUSED.values(), ids=REFUSED)
def test_what_is_no_request_makes_nothing(agent: Agent, fields: dict[str, Any]) -> None:
    assert agent.imports(HELLO, **fields)["code"] == "EINVAL"
    assert os.listdir(agent.sessions) == ["index"]


def test_a_line_may_have_a_mebibyte_and_no_more(agent: Agent) -> None:
    def of(size: int) -> bytes:
        return b'{"role":"user","content":"' + b"x" * (size - 28) + b'"}'

    assert agent.imports(of(1 << 20)) == {"n": 1, "type": "imported"}
    for lines in ((of((1 << 20) + 1),), (of(1 << 19), of(1 << 19))):
        with connected(agent.socket) as client:
            fields = {"home": ALICE.uid, "agent": agent.name, "session": "s", "entries": [["messages", 1]] * len(lines)}
            assert client.ask("import", *lines, **fields)["code"] == "EMSGSIZE"
            assert client.ask("ping") == {"type": "pong"}
    assert (agent.sessions / "s/messages.jsonl").stat().st_size == (1 << 20) + 1


def test_a_stream_that_ends_too_soon_stores_nothing(agent: Agent) -> None:
    with connected(agent.socket) as client:
        client.send(json.dumps({"op": "import", "agent": agent.name, "session": "s", "entries": TIMES}).encode())
        client.send(b"\n" + HELLO + b"\n")
        client.socket.shutdown(1)
        assert client.frame()["code"] == "EINVAL"
    assert os.listdir(agent.sessions) == ["index"]


def test_nobody_imports_into_anothers_home(agent: Agent) -> None:
    assert agent.imports(HELLO, person=BOB, home=ALICE.uid)["code"] == "EACCES"
    assert agent.imports(HELLO, person=BOB)["code"] == "ENOENT"
    assert agent.imports(HELLO, person=Person(0, 0), home=ALICE.uid)["n"] == 1
    assert (agent.sessions / "s/messages.jsonl").stat().st_uid == ALICE.uid


@pytest.fixture(scope="module")
def team(served: RunningMount) -> Iterator[Path]:
    """A shared space of group 2000, with an agent that Alice, a member, made."""
    path = served.path / "shared/team"
    path.mkdir()
    os.chown(path, 0, 2000)
    path.chmod(0o2770)
    Person(1001, 1001, (2000,)).does((path / "agent/coder").mkdir)
    yield path


MEMBERSHIP = [
    (Person(1001, 1001, (2000,)), "imported"),
    (Person(1002, 2000), "imported"),
    (Person(1002, 1002, (2001, 2002)), "error"),
    (Person(1003, 1003), "error"),
    (Person(0, 0), "imported"),
]


@pytest.mark.parametrize(("person", "kind"), MEMBERSHIP)
def test_a_shared_space_is_its_groups(ctx_sock: Path, team: Path, person: Person, kind: str) -> None:
    fields = {"space": "team", "agent": "coder", "session": f"of-{person.uid}-{person.gid}", "entries": TIMES[:1]}
    frame = person.does(answer, ctx_sock, "import", HELLO, **fields)
    assert (frame["type"], frame.get("code")) == (kind, "EACCES" if kind == "error" else None)
    made = team / "agent/coder/session" / str(fields["session"])
    if kind == "imported":
        assert (made.stat().st_uid, made.stat().st_gid) == (person.uid, 2000)
    else:
        assert outcome(made.stat) == "ENOENT"


def test_writers_by_socket_and_by_file_lose_nothing(agent: Agent) -> None:
    """Field report 6, its half that is about this socket."""
    agent.imports(HELLO)
    path = agent.sessions / "s/messages.jsonl"
    lines = [b'{"role":"user","content":"%d"}' % number for number in range(200)]
    client = Client(agent.socket)
    with path.open("ab", buffering=0) as file:
        for by_socket, by_file in zip(lines[::2], lines[1::2], strict=True):
            fields = {"home": ALICE.uid, "agent": agent.name, "session": "s", "entries": TIMES[:1]}
            client.send(json.dumps({"op": "import", **fields}).encode() + b"\n" + by_socket + b"\n")
            file.write(by_file + b"\n")
    for _ in range(100):
        assert client.frame()["type"] == "imported"
    client.close()
    stored = path.read_bytes().splitlines()[1:]
    assert sorted(stored) == sorted(lines)
    assert [line for line in stored if line in lines[::2]] == lines[::2]


@pytest.mark.store("jsonl")
def test_a_plain_store_takes_it_too_and_keeps_it(mount: RunningMount) -> None:
    agent = Agent(mount)
    agent.imports(HELLO, DONE, created_at=1_600_000_000_000, title="Old", origin={"from": ["x"]})
    mount.restart()
    session = agent.sessions / "s"
    assert (session / "created_at").read_text() == "1600000000\n"
    assert (session / "updated_at").read_text() == "1700000005\n"
    assert agent.imports(HELLO, expected_n=2)["n"] == 3


def test_status_counts_what_is_ones_own(agent: Agent) -> None:
    agent.imports(HELLO)
    frame = ALICE.does(answer, agent.socket, "status")
    assert frame["sessions"] >= 1
    assert frame["bytes"] >= len(HELLO) + 1
    assert (frame["space"], frame["failure"], frame["unprovable"]) == ("home/1001", None, 0)
    nobodys = Person(1234, 1234).does(answer, agent.socket, "status")
    assert (nobodys["sessions"], nobodys["agents"], nobodys["bytes"]) == (0, 0, 0)
    assert BOB.does(answer, agent.socket, "status", home=ALICE.uid)["code"] == "EACCES"
