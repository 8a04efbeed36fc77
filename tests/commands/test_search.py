"""``ctx search`` on a real mount: on a pipe, on a terminal, as JSON (spec 4.1; field reports 9, 23)."""

import json
from pathlib import Path

import pytest

from tests.commands.conftest import Agent, Place
from tests.commands.terminal import on_terminal


def filled(agent: Agent) -> None:
    agent.new("one", "two")
    agent.say("one", "user", "where is the red teapot?")
    agent.say("two", "assistant", [{"type": "text", "text": "The Teapot is\nin the \x1b[31mkitchen\x1b[0m."}])
    agent.say("one", "assistant", "No teapots here")


def test_on_a_pipe_it_prints_a_row_for_each_hit_the_newest_first(agent: Agent) -> None:
    filled(agent)
    ran = agent.run("search", "teapot", agent.name)
    assert (ran.code, ran.err) == (0, "")
    rows = [line.split("\t") for line in ran.out.splitlines()]
    assert [(row[0], row[1], row[2], *row[4:]) for row in rows] == [
        (agent.name, "two", "0", "assistant", "The Teapot is in the \\x1b[31mkitchen\\x1b[0m."),
        (agent.name, "one", "0", "user", "where is the red teapot?"),
    ]


def test_as_json_it_is_one_value(agent: Agent) -> None:
    filled(agent)
    ran = agent.run("search", "red teapot", agent.name, "--json")
    (hit,) = json.loads(ran.out)["hits"]
    assert {**hit, "time": 0} == {
        "agent": agent.name,
        "session": "one",
        "n": 0,
        "time": 0,
        "kind": "message",
        "role": "user",
        "snippet": "where is the red teapot?",
    }
    assert json.loads(agent.run("search", "nothing-of-the-kind", agent.name, "--json").out) == {"hits": []}


def test_on_a_terminal_it_shows_where_and_what_in_bold(agent: Agent) -> None:
    filled(agent)
    agent.say("two", "user", "a teapot that is red")
    shown = on_terminal(agent, "search", "RED teapot", agent.name)
    newer, _, place, snippet = shown.splitlines()
    assert newer.startswith(f"\x1b[1m{agent.name}/two")
    assert place.startswith(f"\x1b[1m{agent.name}/one\x1b[0m  \x1b[2m0  user  ")
    assert snippet == "    where is the \x1b[1mred\x1b[0m \x1b[1mteapot\x1b[0m?"


LONG = {
    "families": "👨\u200d👩\u200d👧 word " * 200,
    "flags": "word " + "🇩🇪" * 300,
    "accents": "e\u0301" * 500 + " word",
    "no spaces": "word" + "字" * 2000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_long_text_is_cut_between_characters(agent: Agent, text: str) -> None:
    agent.new("one")
    agent.say("one", "user", text)
    (hit,) = json.loads(agent.run("search", "word", agent.name, "--json").out)["hits"]
    snippet = hit["snippet"].strip("…")
    assert snippet in text
    assert len(hit["snippet"]) <= 240
    assert not snippet.startswith(("\u0301", "\u200d")) and not snippet.endswith("\u200d")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("search", "..."), 2),
        (("search", ""), 2),
        (("search", "x", "no/name"), 2),
        (("search", "x", "AGENT", "--limit", "0"), 2),
        (("search", "x", "AGENT", "--limit", "1001"), 2),
        (("search", "x", "nobody"), 1),
        (("search", "x", "--space", "nowhere"), 1),
        (("search",), 2),
        (("search", "x", "AGENT", "--json", "--kind", "x"), 2),
    ],
)
def test_a_refusal_has_its_code(agent: Agent, arguments: tuple[str, ...], code: int) -> None:
    agent.new("one")
    ran = agent.run(*(agent.name if word == "AGENT" else word for word in arguments))
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("ctx: ") and ran.err.count("\n") == 1


def test_without_a_mount_it_says_so(tmp_path: Path, place: Place) -> None:
    ran = place.ctx("search", "x")
    assert (ran.code, ran.out) == (69, "")
    assert f"no ctxfs at {place.mountpoint}" in ran.err
