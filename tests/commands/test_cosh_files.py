"""``ctx agent session import --from cosh`` and ``export --to cosh`` (spec 4.2, 5)."""

import json
import os
import stat
from pathlib import Path

import pytest

from tests.commands.conftest import Agent
from tests.cosh_store import CoshStore, message, session_id

_CALL = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"cmd":"ls"}'}}
_MESSAGES = [
    message([{"type": "text", "text": "list"}]),
    message([{"type": "text", "text": "I look"}], "assistant", tool_calls=[_CALL]),
    message("a.txt", "tool", tool_call_id="c1", name="shell"),
    message([{"type": "text", "text": "done"}], "assistant"),
]


@pytest.fixture
def store(tmp_path: Path) -> CoshStore:
    return CoshStore(tmp_path)


def test_a_scope_directory_is_imported_and_a_session_goes_back(agent: Agent, store: CoshStore, tmp_path: Path) -> None:
    path = store.put(1, messages=_MESSAGES, generation=4)
    store.put(2)
    ran = agent.run("agent", "import", agent.name, "--from", "cosh", str(store.scope))
    assert (ran.code, ran.out.startswith("2 sessions: ")) == (0, True)
    assert (agent.directory / f"index/by-uuid/{session_id(1)}").read_text() == f"{session_id(1)}\n"

    ran = agent.run("agent", "export", agent.name, "-s", session_id(1), "--to", "cosh", str(store.scope))
    assert ran == (0, f"{path}\n", "")
    written = json.loads(path.read_bytes())
    assert written == {**store.envelope(1, messages=_MESSAGES, generation=5), "compaction_revision": 0}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(os.listdir(store.scope)) == sorted(f"{session_id(number)}.json" for number in (1, 2))

    ran = agent.run("agent", "import", agent.name, "--from", "cosh", str(path))
    assert " 0 lines added" in ran.out


def test_a_session_of_our_own_gets_an_id_that_stays(agent: Agent, tmp_path: Path) -> None:
    agent.new("talk")
    agent.say("talk", "user", "my key is sk-abcdefghijklmnop")
    first = agent.run("agent", "export", agent.name, "-s", "talk", "--to", "cosh", str(tmp_path / "out")).out
    again = agent.run("agent", "export", agent.name, "-s", "talk", "--to", "cosh", str(tmp_path / "out")).out
    assert first == again
    [file] = (tmp_path / "out").iterdir()
    written = json.loads(file.read_bytes())
    assert (written["session_id"], written["generation"]) == (file.stem, 2)
    assert written["messages"] == [message("my key is <redacted>")]


def test_a_damaged_session_is_left_out(agent: Agent, store: CoshStore) -> None:
    store.put(1)
    path = store.put(2, b"{")
    ran = agent.run("agent", "import", agent.name, "--from", "cosh", str(store.scope))
    assert ran.code == 1
    assert f"{path}:1: " in ran.err
    assert "1 session: " in ran.out
