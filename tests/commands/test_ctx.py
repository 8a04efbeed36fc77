"""``ctx`` on a real mount: reading, making and selecting sessions (spec 4.1, 4.2)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ctxfs.version import version
from tests.commands.conftest import Agent
from tests.commands.running import ctx
from tests.commands.terminal import on_terminal
from tests.mounting import PROJECT


def test_a_new_session_is_there_and_its_place_is_printed(agent: Agent) -> None:
    ran = agent.run("agent", "session", "new", agent.name, "first", "--cwd", "/srv/x")
    assert ran == (0, f"{agent.directory}/first\n", "")
    assert (agent.directory / "first/cwd").read_text() == "/srv/x\n"
    assert (agent.directory / "index/current").read_text() == "first\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("session", "new", "AGENT", "taken"), 1),
        (("session", "new", "AGENT", "a/b"), 2),
        (("session", "new", "AGENT", ".."), 2),
        (("session", "new", "AGENT", ""), 2),
        (("session", "new", "AGENT", "index"), 2),
        (("session", "new", "AGENT", "bad name"), 2),
        (("session", "new", "AGENT", "x" * 65), 2),
        (("session", "new", "AGENT", "x.sock"), 2),
        (("session", "new", "../../../etc", "x"), 2),
        (("session", "new", "AGENT", "x", "--cwd", "relative"), 2),
        (("session", "new", "AGENT", "x", "--cwd", "/a/../b"), 2),
        (("session", "select", "AGENT", "nothing"), 1),
        (("session", "select", "AGENT", "taken", "--from", "nothing"), 69),
        (("session", "new", "AGENT"), 2),
        (("session", "list", "AGENT", "--state", "running"), 2),
        (("session", "list", "AGENT", "--json", "--limit", "few"), 2),
        (("session", "new", "AGENT", "x", "--spce", "y"), 2),
        (("output", "AGENT", "-s", "nothing"), 1),
        (("history", "AGENT", "-s", "../taken"), 2),
        (("history", "nobody"), 1),
        (("output", "AGENT", "--space", "nowhere"), 1),
        (("import", "AGENT", "--from", "fortran", "x"), 2),
        (("import", "AGENT", "--from", "jsonl", "/no/such/file"), 1),
    ],
)
def test_a_refusal_has_its_code_and_does_nothing(agent: Agent, arguments: tuple[str, ...], code: int) -> None:
    agent.new("taken")
    before = sorted(os.listdir(agent.directory))
    ran = agent.run("agent", *(agent.name if word == "AGENT" else word for word in arguments))
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("ctx: ") and ran.err.count("\n") == 1
    assert sorted(os.listdir(agent.directory)) == before


def test_select_makes_a_session_current_and_can_compare_first(agent: Agent) -> None:
    agent.new("one", "two")
    codes = [
        agent.run("agent", "session", "select", agent.name, *words).code
        for words in (("two",), ("one", "--from", "one"), ("one", "--from", "two"))
    ]
    assert codes == [0, 69, 0]
    assert (agent.directory / "index/current").read_text() == "one\n"


def test_output_is_the_bytes_of_the_current_session_s_latest_text(agent: Agent) -> None:
    agent.new("one", "two")
    agent.say("one", "assistant", "é\n\ntwo lines")
    agent.say("two", "assistant", [{"type": "text", "text": "other"}])
    outs = [
        agent.run("agent", "output", agent.name, *options).out for options in ((), ("-s", "two"), ("--session=two",))
    ]
    assert outs == ["é\n\ntwo lines\n", "other\n", "other\n"]


def test_without_a_current_session_it_is_default(agent: Agent) -> None:
    ran = agent.run("agent", "output", agent.name)
    assert ran.code == 1 and "/default" in ran.err


def test_tables_have_titles_on_a_terminal_only(agent: Agent) -> None:
    agent.new("s")
    assert (
        on_terminal(agent, "agent", "session", "list", agent.name)
        .splitlines()[0]
        .strip()
        .startswith("\x1b[1mname  state")
    )
    assert agent.run("agent", "session", "list", agent.name).out.split("\t")[:2] == ["s", "idle"]


def test_lists_are_the_same_with_the_socket_and_without(agent: Agent, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        agent.new(name)
    agent.say("a", "user", "hello")
    agent.run("agent", "session", "branch", agent.name, "-s", "a", "--name", "d")
    (agent.directory / "b/cwd").write_text("/w")
    elsewhere = {**agent.mount.environment, "CTX_HOME": str(agent.directory.parents[2]), "CTX_ROOT": str(tmp_path)}
    for words in (("list",), ("session", "list", agent.name), ("tree", agent.name)):
        for options in ((), ("--json",)):
            told = agent.run("agent", *words, *options)
            assert told == ctx("agent", *words, *options, environment=elsewhere)
            assert told.code == 0 and (agent.name if words == ("list",) else "d") in told.out


def test_session_list_in_json(agent: Agent) -> None:
    agent.new("old", "new")
    line = agent.say("new", "user", "x")
    rows = json.loads(agent.run("agent", "session", "list", agent.name, "--json").out)["sessions"]
    assert [row.pop("updated_at") > 0 for row in rows] == [True, True]
    ids = [os.getxattr(agent.directory / name, "user.ctx.uuid").decode() for name in ("new", "old")]
    root = {"state": "idle", "cwd": "/", "parent": None, "at": None}
    assert rows == [
        {"name": "new", "id": ids[0], "entries": 1, "size": len(line), **root},
        {"name": "old", "id": ids[1], "entries": 0, "size": 0, **root},
    ]


def test_agent_list_in_json_has_agents_with_sessions_only(agent: Agent) -> None:
    agent.new("s")
    (agent.directory.parent.parent / f"{agent.name}-empty").mkdir()
    found = json.loads(agent.run("agent", "list", "--json").out)["agents"]
    rows = {row["agent"]: row for row in found}
    assert f"{agent.name}-empty" not in rows
    row = rows[agent.name]
    assert (row["sessions"], row["newest"], row["state"]) == (1, "s", "idle")


def test_models_have_sessions_like_agents(agent: Agent) -> None:
    model = f"model:prov/{agent.name}"
    before = json.loads(agent.run("status", "--json").out)["sessions"]
    assert agent.run("agent", "session", "new", model, "s").code == 0
    assert agent.run("agent", "session", "list", model).out.startswith("s\t")
    assert f"\n{model}\t1\ts\t" in "\n" + agent.run("agent", "list").out
    assert json.loads(agent.run("status", "--json").out)["sessions"] == before + 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["three", "two", "one"]),
        (("--state", "done"), ["three", "one"]),
        (("-n", "2"), ["three", "two"]),
        (("--state", "done", "--limit", "1"), ["three"]),
        (("--state", "error"), []),
        (("-n", "0"), []),
    ],
)
def test_sessions_can_be_chosen_by_state_and_number(
    agent: Agent, options: tuple[str, ...], expected: list[str]
) -> None:
    agent.new("one", "two", "three")
    for session in ("one", "two", "three"):
        agent.say(session, "user", "x")
        (agent.directory / session / "state").write_text("done" if session != "two" else "active")
    found = json.loads(agent.run("agent", "session", "list", agent.name, "--json", *options).out)["sessions"]
    assert [row["name"] for row in found] == expected


def test_status_counts_what_is_mine(agent: Agent) -> None:
    agent.new("s")
    line = agent.say("s", "user", "x")
    facts = json.loads(agent.run("status", "--json").out)
    assert facts["root"] == str(agent.mount.path)
    assert facts["home"] == str(agent.mount.path / f"home/{os.geteuid()}")
    assert facts["mount"]["state"] == "ok"
    assert facts["sessions"] >= 1 and facts["bytes"] >= len(line)
    assert (facts["version"], facts["unprovable"]) == (version(), 0)


@pytest.mark.parametrize("parts", [("status", "home"), ("status", "agent")], ids=["no socket", "a home elsewhere"])
def test_status_counts_by_itself_where_nobody_can_be_asked(
    agent: Agent, tmp_path: Path, parts: tuple[str, ...]
) -> None:
    agent.new("s")
    agent.say("s", "user", "x")
    for part in parts:
        (tmp_path / part).symlink_to(agent.mount.path / part)
    asked = json.loads(agent.run("status", "--json").out)
    home = {"CTX_ROOT": str(tmp_path), "CTX_HOME": asked["home"]}
    read = json.loads(ctx("status", "--json", environment=agent.mount.environment | home).out)
    assert read == asked | {"root": str(tmp_path), "version": None, "unprovable": None}


def test_an_encoding_that_lacks_a_character_gets_its_escape(agent: Agent) -> None:
    agent.new("s")
    agent.say("s", "user", "é")
    environment = {**agent.mount.environment, "PYTHONIOENCODING": "ascii"}
    ran = ctx("agent", "history", agent.name, "--pretty", environment=environment)
    assert (ran.code, ran.out.splitlines()[1]) == (0, "\\xe9")


def test_where_nothing_is_mounted_commands_say_so(agent: Agent, tmp_path: Path) -> None:
    ran = ctx("agent", "list", environment={**agent.mount.environment, "CTX_ROOT": str(tmp_path)})
    assert ran.code == 69 and "CTX_ROOT" in ran.err


def test_ctx_home_overrides_whose_home_it_is(agent: Agent) -> None:
    agent.new("s")
    environment = {**agent.mount.environment, "CTX_HOME": str(agent.directory.parents[2]), "CTX_ROOT": "/nowhere"}
    assert ctx("agent", "session", "list", agent.name, environment=environment).out.startswith("s\t")


def test_a_reader_that_goes_away_is_no_error_message(agent: Agent) -> None:
    agent.new("s")
    for _ in range(8):
        agent.say("s", "user", "x" * 60000)
    command = f"{sys.executable} -m mountctl.ctx agent history {agent.name} | head -c 10"
    ran = subprocess.run(
        command, shell=True, env=agent.mount.environment, cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert (ran.stdout, ran.stderr) == ('{"role": "', "")


@pytest.mark.parametrize(
    "words",
    [
        *("output AGENT", "history AGENT", "history AGENT --pretty", "trajectory AGENT", "session list AGENT"),
        *("list", "list --help", "--help"),
    ],
)
def test_output_that_cannot_be_written_is_an_error(agent: Agent, words: str) -> None:
    agent.new("s")
    agent.say("s", "assistant", "x")
    program = f"env -u PYTHONUNBUFFERED {sys.executable} -m mountctl.ctx agent"
    command = f"{program} {words.replace('AGENT', agent.name)} >/dev/full"
    ran = subprocess.run(
        command, shell=True, env=agent.mount.environment, cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (1, "ctx: No space left on device\n")


def test_the_quick_path_of_output_imports_nothing_that_is_slow(agent: Agent) -> None:
    agent.new("s")
    agent.say("s", "assistant", "x")
    command = [sys.executable, "-X", "importtime", "-m", "mountctl.ctx", "agent", "output", agent.name]
    ran = subprocess.run(command, env=agent.mount.environment, cwd=PROJECT, capture_output=True, text=True, check=True)
    imported = {line.rsplit("|", 1)[1].strip() for line in ran.stderr.splitlines() if "|" in line}
    bare = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "mountctl.nothing"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    already = {line.rsplit("|", 1)[1].strip() for line in bare.stderr.splitlines() if "|" in line}
    assert ran.stdout == "x\n"
    # What is built into the interpreter takes no time.
    assert imported - already - set(sys.builtin_module_names) == {
        "mountctl.cli",
        "__future__",
        "mountctl.places",
        "backend",
        "backend.names",
        "mountctl.ctx_agent_output",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nobody",), "there is no 'nobody': the agents are a, b"),
        (("model:p/none",), "there is no 'model:p/none': the models are model:p/one, model:two"),
        (("a", "--space", "nowhere"), "there is no shared space 'nowhere': there are no spaces yet"),
    ],
)
def test_the_sessions_of_what_is_not_there_are_an_error_that_names_what_is(
    agent: Agent, words: tuple[str, ...], said: str
) -> None:
    home = agent.mount.path / "home/7777"
    for owner in ("agent/b", "agent/a", "model/p", "model/p/one.d", "model/two.d"):
        (home / owner).mkdir(exist_ok=True)
    environment = {**agent.mount.environment, "CTX_HOME": str(home)}
    assert ctx("agent", "session", "list", *words, environment=environment) == (1, "", f"ctx: {said}\n")


def test_an_agent_without_sessions_has_an_empty_list(agent: Agent) -> None:
    agent.directory.parent.mkdir()
    assert agent.run("agent", "session", "list", agent.name) == (0, "", "")
    assert agent.run("agent", "session", "list", agent.name, "--json").out == '{"sessions": []}\n'
