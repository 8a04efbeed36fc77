"""A log as an ATIF trajectory (spec 4.3): a table of logs and their steps, and what holds for every log."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.entries import CutEntry, MessageEntry
from backend.trajectory import Agent, agent_of, issues, project
from tests import harbor
from tests.unit.trajectory_cases import (
    CASES,
    TIME,
    answered,
    called,
    log_of,
    said,
    steps,
    to_json,
    trajectory,
    used,
)

needs_harbor = pytest.mark.skipif(
    harbor.python() is None, reason="no Python >= 3.12 has the harbor package (./run test makes .venv-harbor)"
)


@pytest.mark.parametrize(("lines", "expected"), CASES.values(), ids=CASES)
def test_the_steps_of_a_log(lines: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert steps(*lines) == expected


def test_steps_are_numbered_from_1_and_have_their_entries_times() -> None:
    found = trajectory(said("user", "a"), called("r", "c"), said("assistant", "b", "r"))
    assert [(step.step_id, step.timestamp) for step in found.steps] == [
        (1, "2026-01-01T00:00:00.000Z"),
        (2, "2026-01-01T00:00:02.000Z"),
    ]


@pytest.mark.parametrize("time", [-(10**18), 10**18])
def test_a_time_that_no_calendar_has_is_left_out(time: int) -> None:
    found = project([MessageEntry(0, time, said("user", "a"))], "s", Agent("coder", "1.0"))
    assert found.steps[0].timestamp is None


@pytest.mark.parametrize(
    ("usages", "totals"),
    [
        ([], {"total_steps": 1}),
        (
            [used("r", 10, 1), used("other", 5, 2), used(None, 1, 1)],
            {"total_steps": 1, "total_prompt_tokens": 16, "total_completion_tokens": 4},
        ),
    ],
)
def test_totals_are_of_all_usage(usages: list[dict[str, Any]], totals: dict[str, int]) -> None:
    found = trajectory(said("assistant", "a", "r"), *usages)
    assert json.loads(to_json(found))["final_metrics"] == totals


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({}, {"name": "coder"}),
        ({"client": "", "model": ""}, {"name": "coder"}),
        ({"client": " \t"}, {"name": "coder"}),
        ({"client": 7, "scope": 7, "model": 7}, {"name": "coder"}),
        (
            {"client": "ctx", "model": "p/m", "scope": "private", "more": 1},
            {"name": "ctx", "model_name": "p/m", "extra": {"scope": "private"}},
        ),
    ],
)
def test_the_agent_is_what_meta_json_says(meta: dict[str, Any], expected: dict[str, Any]) -> None:
    found = project(log_of(said("user", "a")), "s", agent_of(meta, "coder", "1.2"))
    assert json.loads(to_json(found))["agent"] == expected | {"version": "1.2"}


def test_the_whole_document() -> None:
    found = trajectory(said("user", "é"), said("assistant", "b", "r"))
    assert to_json(found).decode() == (
        """{
  "schema_version": "ATIF-v1.7",
  "session_id": "s",
  "agent": {
    "name": "coder",
    "version": "1.0"
  },
  "steps": [
    {
      "step_id": 1,
      "source": "user",
      "message": "é",
      "timestamp": "2026-01-01T00:00:00.000Z"
    },
    {
      "step_id": 2,
      "source": "agent",
      "message": "b",
      "timestamp": "2026-01-01T00:00:01.000Z",
      "extra": {
        "run": "r"
      }
    }
  ],
  "notes": "projected from the session's messages.jsonl and events.jsonl",
  "final_metrics": {
    "total_steps": 2
  }
}
"""
    )


def test_without_steps_it_is_json_too() -> None:
    assert b'\n  "steps": [],\n' in to_json(trajectory())


def test_a_text_that_looks_like_the_format_is_a_text() -> None:
    found = project(log_of(said("user", '"steps": []')), '"steps": []', Agent('"steps": []', "1"))
    document = json.loads(to_json(found))
    assert [document["session_id"], document["agent"]["name"], document["steps"][0]["message"]] == ['"steps": []'] * 3


def test_a_lone_surrogate_is_written_as_its_escape() -> None:
    document = to_json(trajectory(called("r", "c", arguments={"\ud800": ["\udfff\\n"]}), said("user", "a\ud800\0")))
    assert json.loads(document)["steps"][0]["message"] == "a\\ud800\0"
    assert b'"\\\\ud800": [' in document and b'"\\\\udfff\\\\n"' in document


BROKEN = {
    "a blank call id": ([called("r", " ")], ["step 1: a tool call without an id"]),
    "a blank name": ([said("user"), called("r", "c", "")], ["step 2: tool call 'c' without a name"]),
}


@pytest.mark.parametrize(("lines", "expected"), BROKEN.values(), ids=BROKEN)
def test_a_log_that_gives_an_invalid_trajectory(lines: list[dict[str, Any]], expected: list[str]) -> None:
    assert list(issues(trajectory(*lines))) == expected


DAMAGE = {
    "schema_version": ("schema_version must begin with ATIF-v", lambda found: setattr(found, "schema_version", "1")),
    "agent name": ("missing agent name", lambda found: setattr(found.agent, "name", " ")),
    "agent version": ("missing agent version", lambda found: setattr(found.agent, "version", "")),
    "numbering": ("step 2: step_id is 1", lambda found: setattr(found.steps[1], "step_id", 1)),
    "source": ("step 1: unknown source 'me'", lambda found: setattr(found.steps[0], "source", "me")),
    "metrics of a user": (
        "step 1: tool calls or metrics in a step of source 'user'",
        lambda found: setattr(found.steps[0], "metrics", found.steps[1].metrics),
    ),
    "a result of another step": (
        "step 2: a result of 'c', which is no tool call of this step",
        lambda found: setattr(found.steps[1], "tool_calls", None),
    ),
}


@pytest.mark.parametrize(("issue", "damage"), DAMAGE.values(), ids=DAMAGE)
def test_each_rule_of_the_format_is_checked(issue: str, damage: Any) -> None:
    found = trajectory(
        said("user", "a"), said("assistant", "b", "r"), called("r", "c"), answered("r", ("c", "x")), used("r", 1, 1)
    )
    assert list(issues(found)) == []
    damage(found)
    assert issue in list(issues(found))


runs = st.sampled_from([None, "r", "q", ""])
ids = st.sampled_from(["c", "d", "e"])
texts = st.text(st.characters(codec="utf-8") | st.sampled_from("\ud800\0"), max_size=6)
json_values = st.recursive(st.none() | st.booleans() | st.integers() | texts, lambda inner: st.lists(inner, max_size=2))
contents = texts | st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "image"])}, optional={"text": texts | st.integers()})
)
lines = st.one_of(
    st.builds(
        said, st.sampled_from(["user", "system", "tool", "assistant", "assistant"]), contents | json_values, runs
    ),
    st.builds(
        said,
        st.just("assistant"),
        texts,
        runs,
        tool_calls=st.lists(st.fixed_dictionaries({"id": ids, "name": st.just("f"), "arguments": st.just({})})),
    ),
    st.builds(lambda run, pairs: answered(run, *pairs), runs, st.lists(st.tuples(ids, contents), max_size=2)),
    st.builds(called, runs, ids, st.just("f"), arguments=st.dictionaries(texts, json_values, max_size=2)),
    st.builds(used, runs, st.integers(0, 9), st.integers(0, 9)),
)
logs = st.lists(lines, max_size=12)


def recorded_calls(log: Sequence[dict[str, Any]]) -> Counter[tuple[str | None, str]]:
    """How often a run made a call of an id, as its events say, and its messages where no event does."""
    events = Counter((line["run"] or None, line["id"]) for line in log if line.get("type") == "tool_call")
    named = Counter((line.get("run") or None, call["id"]) for line in log for call in line.get("tool_calls", ()))
    return events + Counter({key: count for key, count in named.items() if key not in events})


@given(logs)
def test_nothing_is_invented_and_no_call_is_lost(log: list[dict[str, Any]]) -> None:
    found = trajectory(*log)
    assert list(issues(found)) == []
    texts_said = [(line["role"], line["content"]) for line in log if "role" in line and line["role"] != "tool"]
    assert len([step for step in found.steps if step.message]) <= len(texts_said)
    shown = Counter(
        (step.extra["run"] if step.extra else None, call.tool_call_id)
        for step in found.steps
        for call in step.tool_calls or ()
    )
    recorded = recorded_calls(log)
    assert shown.total() == recorded.total()
    # A run-less call may stand in the only agent step, whatever its run.
    assert all(shown[key] >= count for key, count in recorded.items() if key[0] is not None)


@given(logs)
def test_results_answer_calls_of_their_step_and_totals_are_sums(log: list[dict[str, Any]]) -> None:
    document = json.loads(to_json(trajectory(*log)))
    for found in document["steps"]:
        asked = Counter(call["tool_call_id"] for call in found.get("tool_calls", ()))
        answers = Counter(result["source_call_id"] for result in found.get("observation", {"results": ()})["results"])
        assert answers <= asked
    total = sum(line["input_tokens"] for line in log if line.get("type") == "usage")
    assert document["final_metrics"].get("total_prompt_tokens", 0) == total
    assert document["final_metrics"]["total_steps"] == len(document["steps"])


def test_cuts_are_no_steps() -> None:
    log = [*log_of(said("user", "a")), CutEntry(1, TIME, {"before": 1, "summary": [said("user", "b")], "reason": "r"})]
    assert [step.message for step in project(log, "s", Agent("coder", "1.0")).steps] == ["a"]


@needs_harbor
def test_every_case_passes_the_validator_of_harbor() -> None:
    documents = {case: to_json(trajectory(*lines)) for case, (lines, expected) in CASES.items() if expected}
    assert dict(zip(documents, harbor.faults([*documents.values()]), strict=True)) == {case: [] for case in documents}


@needs_harbor
def test_every_log_passes_the_validator_of_harbor() -> None:
    documents = list[bytes]()

    @given(logs)
    def collect(log: list[dict[str, Any]]) -> None:
        if (found := trajectory(*log)).steps:
            documents.append(to_json(found))

    collect()
    assert documents
    assert [faults for faults in harbor.faults(documents) if faults] == []


@needs_harbor
def test_the_validator_of_harbor_is_really_asked() -> None:
    assert harbor.faults([b'{"schema_version": "ATIF-v1.7"}']) != [[]]
