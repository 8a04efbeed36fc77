"""docs/json.md says what commands print with ``--json``: one value, with just the keys that it names."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.commands.conftest import Agent
from tests.mounting import PROJECT

_SECTION = re.compile(r"## `(ctx [a-z ]+) --json`\n\n(.*?)(?=\n## |\Z)", re.DOTALL)
SECTIONS = dict(_SECTION.findall((PROJECT / "docs/json.md").read_text()))
OPEN_KEYS = ("mount",)  # objects whose keys are data


def keys(value: Any) -> Iterator[str]:
    """All keys in a JSON value."""
    if isinstance(value, list):
        for item in value:
            yield from keys(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            if key not in OPEN_KEYS:
                yield from keys(item)


@pytest.mark.parametrize("words", ["ctx status", "ctx agent list", "ctx agent session list"])
def test_a_command_prints_one_value_with_the_keys_that_are_documented(agent: Agent, words: str) -> None:
    agent.new("s")
    agent.say("s", "user", "x")
    arguments = words.split()[1:] + ([agent.name] if "session" in words else [])
    ran = agent.run(*arguments, "--json")
    assert (ran.code, ran.err, ran.out.count("\n")) == (0, "", 1)
    documented = set(re.findall(r'"(\w+)"', SECTIONS[words].split("}`")[0]))
    assert set(keys(json.loads(ran.out))) == documented
