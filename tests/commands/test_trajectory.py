"""``ctx agent trajectory`` on a real mount: what is printed, when it is refused, and that nothing is written (4.3)."""

import json
from datetime import datetime
from typing import Any

import pytest

from ctxfs.version import version
from tests import harbor
from tests.commands.conftest import Agent

RESULT = [{"type": "tool_result", "tool_call_id": "c", "content": "x"}]


def record(agent: Agent, session: str, **event: Any) -> None:
    """Appends an event."""
    with (agent.directory / session / "events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")


def call(agent: Agent, name: str = "f", call_id: str = "c") -> None:
    record(agent, "s", type="tool_call", run="r", id=call_id, name=name, arguments={"path": "a"})


def run_of_an_agent(agent: Agent) -> None:
    """What a send records."""
    agent.new("s")
    agent.say("s", "user", "hello", run="r")
    record(agent, "s", type="start", id="r", run="r", client_id="x", scope="private", cwd="/srv")
    agent.say("s", "assistant", [{"type": "text", "text": "é"}], run="r")
    call(agent)
    agent.say("s", "tool", RESULT, run="r", name="f")
    agent.say("s", "tool", RESULT, run="other", name="f")
    record(agent, "s", type="usage", run="r", input_tokens=10, output_tokens=1)
    record(agent, "s", type="done", run="r", status="ok")


def trajectory(agent: Agent, *options: str) -> dict[str, Any]:
    ran = agent.run("agent", "trajectory", agent.name, *options)
    assert (ran.code, ran.err) == (0, "")
    found: dict[str, Any] = json.loads(ran.out)
    return found


def test_a_run_is_two_steps_with_its_call_and_usage(agent: Agent) -> None:
    run_of_an_agent(agent)
    found = trajectory(agent)
    assert [step.pop("timestamp").endswith("Z") for step in found["steps"]] == [True, True]
    assert found == {
        "schema_version": "ATIF-v1.7",
        "session_id": "s",
        "agent": {"name": "ctx", "version": version(), "extra": {"scope": "private"}},
        "steps": [
            {"step_id": 1, "source": "user", "message": "hello"},
            {
                "step_id": 2,
                "source": "agent",
                "message": "é",
                "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": {"path": "a"}}],
                "observation": {"results": [{"source_call_id": "c", "content": "x"}]},
                "metrics": {"prompt_tokens": 10, "completion_tokens": 1},
                "extra": {"run": "r"},
            },
        ],
        "notes": "projected from the session's messages.jsonl and events.jsonl",
        "final_metrics": {"total_steps": 2, "total_prompt_tokens": 10, "total_completion_tokens": 1},
    }


def test_a_step_has_the_time_of_its_entry(agent: Agent) -> None:
    run_of_an_agent(agent)
    entries = map(json.loads, (agent.directory / "s/context/log.jsonl").read_text().splitlines())
    times = [entry["time"] for entry in entries if entry["kind"] == "message"][:2]
    found = [datetime.fromisoformat(step["timestamp"]) for step in trajectory(agent)["steps"]]
    assert [round(moment.timestamp() * 1000) for moment in found] == times


@pytest.mark.skipif(harbor.python() is None, reason="no Python >= 3.12 has the harbor package (./run test makes one)")
def test_what_is_printed_passes_the_validator_of_harbor(agent: Agent) -> None:
    run_of_an_agent(agent)
    assert harbor.faults([agent.run("agent", "trajectory", agent.name).out.encode()]) == [[]]


@pytest.mark.parametrize(
    ("client", "name"), [("cosh", "cosh"), ("", None)], ids=["a client", "an empty client counts as none"]
)
def test_the_agent_is_the_client_or_has_the_agent_s_name(agent: Agent, client: str, name: str | None) -> None:
    agent.new("s")
    agent.say("s", "user", "hello")
    (agent.directory / "s/meta.json").write_text(json.dumps({"client": client, "model": "p/m"}))
    assert trajectory(agent, "-s", "s")["agent"] == {
        "name": name or agent.name,
        "version": version(),
        "model_name": "p/m",
    }


def test_a_model_s_session_is_of_that_model(agent: Agent) -> None:
    model = f"prov/{agent.name}"
    assert agent.run("agent", "session", "new", f"model:{model}", "s").code == 0
    directory = agent.mount.path / f"home/{agent.directory.parts[-4]}/model/{model}.d/session/s"
    (directory / "meta.json").write_text('{"client":""}')
    (directory / "messages.jsonl").write_text('{"role":"user","content":"x"}\n')
    ran = agent.run("agent", "trajectory", f"model:{model}")
    assert json.loads(ran.out)["agent"]["name"] == model


def test_an_empty_session_has_nothing_to_export(agent: Agent) -> None:
    agent.new("s")
    record(agent, "s", type="cwd", cwd="/srv")
    ran = agent.run("agent", "trajectory", agent.name)
    assert (ran.code, ran.out) == (69, "") and ran.err.startswith("ctx: nothing to export")


def test_a_session_that_is_not_there_is_an_error(agent: Agent) -> None:
    agent.new("s")
    ran = agent.run("agent", "trajectory", agent.name, "-s", "other")
    assert (ran.code, ran.out) == (1, "") and "no session" in ran.err


def test_an_invalid_trajectory_is_refused_with_its_issues(agent: Agent) -> None:
    agent.new("s")
    call(agent, name=" ")
    ran = agent.run("agent", "trajectory", agent.name)
    assert ran == (
        69,
        "",
        "ctx: invalid trajectory projection (1 issue)\n- step 1: tool call 'c' without a name\n",
    )


def test_of_many_issues_sixteen_are_shown_each_cut_and_escaped(agent: Agent) -> None:
    agent.new("s")
    for number in range(20):
        call(agent, name="", call_id=f"\x1b[2J{number}" + "x" * 300)
    ran = agent.run("agent", "trajectory", agent.name)
    lines = ran.err.splitlines()
    assert ran.code == 69 and "\x1b" not in ran.err
    assert lines[0] == "ctx: invalid trajectory projection (20 issues)"
    assert len(lines) == 18 and lines[-1] == "- 4 more issues not shown"
    assert max(map(len, lines)) == len("- ") + 256


def test_nothing_is_written(agent: Agent) -> None:
    run_of_an_agent(agent)
    before = {path.name: path.stat().st_mtime_ns for path in (agent.directory / "s").iterdir() if path.is_file()}
    trajectory(agent)
    after = {path.name: path.stat().st_mtime_ns for path in (agent.directory / "s").iterdir() if path.is_file()}
    assert after == before
