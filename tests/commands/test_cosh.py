"""``ctx cosh``: sessions of cosh-core for people and programs, ours and a stand-in (spec 5.1)."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.commands.running import Ran, ctx
from tests.cosh_store import CoshStore, message, session_id
from tests.mounting import PROJECT

_STAND_IN = """#!{python}
import json, sys
assert sys.argv[1:] == ["--session-control"]
request = json.load(sys.stdin)
if request["action"] == "prepare_clear_all":
    data = {{"session_ids": [f"{{n:03}}" for n in range(200)], "protected_session_ids": [], "next_cursor": None}}
elif request["session_ids"][0] == "000":
    data = {{"deleted": request["session_ids"], "skipped": []}}
else:
    sys.exit("broken")
print(json.dumps({{"ok": True, "data": {{"action": request["action"], **data}}}}))
"""


@pytest.fixture
def store(tmp_path: Path) -> CoshStore:
    made = CoshStore(tmp_path)
    made.put(1, messages=[message("first\x1b[31m prompt")])
    made.put(2, b"corrupt")
    return made


def run(store: CoshStore, *arguments: str) -> Ran:
    environment = {**os.environ, "HOME": str(store.home)}
    return ctx("cosh", *arguments, "--workspace", str(store.workspace), environment=environment)


def test_list_prints_a_row_a_session(store: CoshStore) -> None:
    rows = [line.split("\t") for line in run(store, "list").out.splitlines()]
    assert [(row[0], row[2], row[6]) for row in rows] == [
        (session_id(2), "corrupt", "-"),
        (session_id(1), "ready", "first[31m prompt"),
    ]


def test_list_goes_on_from_a_cursor(store: CoshStore) -> None:
    first = run(store, "list", "--limit", "1")
    cursor = re.search(r"--cursor (\S+)", first.err)
    assert cursor is not None
    assert run(store, "list", "--cursor", cursor[1]).out.startswith(session_id(1))
    assert run(store, "list", "--all").out.count("\n") == 2


def test_inspect_shows_what_validate_refuses(store: CoshStore) -> None:
    assert "health: corrupt\n" in run(store, "inspect", session_id(2)).out
    refused = run(store, "validate", session_id(2))
    assert refused.code == 1
    assert "(corrupt): Clear the damaged session after confirming its ID." in refused.err
    assert "health: ready\n" in run(store, "validate", session_id(1)).out


def test_clear_all_shows_its_plan_and_does_nothing_unless_somebody_agrees(store: CoshStore) -> None:
    before = store.files()
    ran = run(store, "clear-all", "--protect", session_id(2))
    assert ran.code == 2
    assert f"remove {session_id(1)}\nkeep {session_id(2)}\n" in ran.err
    assert store.files() == before


def test_clear_all_removes_what_its_plan_says(store: CoshStore) -> None:
    ran = run(store, "clear-all", "--protect", session_id(2), "--yes")
    assert (ran.code, ran.out) == (0, f"removed {session_id(1)}\n")
    assert os.listdir(store.scope) == [f"{session_id(2)}.json"]
    assert run(store, "clear-all", "--protect", session_id(2), "--yes").code == 0


def test_a_batch_that_fails_is_told_apart_from_those_before(store: CoshStore, tmp_path: Path) -> None:
    path = tmp_path / "cosh-core"
    path.write_text(_STAND_IN.format(python=sys.executable))
    path.chmod(0o755)
    ran = run(store, "clear-all", "--yes", "--core", str(path))
    assert (ran.code, ran.out.count("removed ")) == (1, 128)
    assert ran.err.count("it is not known whether it was removed") == 72
    told = json.loads(run(store, "clear-all", "--yes", "--json", "--core", str(path)).out)
    assert (len(told["deleted"]), len(told["unknown_session_ids"])) == (128, 72)
    assert told["error"]["code"] == "transport"


_HOSTILE = """#!{python}
import json, sys
action = json.load(sys.stdin)["action"]
esc = "\\x1b[31m"
shown = dict.fromkeys(("session_id", "workspace_scope", "health", "model", "first_prompt"), esc)
summary = {{**shown, "created_at_ms": 0, "updated_at_ms": 0, "message_count": 0, "schema_version": None}}
error = {{"code": esc, "message": esc, "recoverable": True, "hint": esc}}
data = {{
    "list": {{"sessions": [summary], "next_cursor": esc}},
    "inspect": {{"session": summary}},
    "prepare_clear_all": {{"session_ids": [esc], "protected_session_ids": [esc], "next_cursor": None}},
    "clear": {{"deleted": [], "skipped": [{{"session_id": esc, "error": error}}]}},
}}.get(action)
print(json.dumps({{"ok": bool(data), "data": data and {{"action": action, **data}}, "error": error}}))
"""


@pytest.mark.parametrize(
    ("words", "code"), [(["list"], 0), (["inspect", "x"], 0), (["validate", "x"], 1), (["clear-all", "--yes"], 1)]
)
def test_what_core_says_steers_no_terminal(store: CoshStore, tmp_path: Path, words: list[str], code: int) -> None:
    path = tmp_path / "cosh-core"
    path.write_text(_HOSTILE.format(python=sys.executable))
    path.chmod(0o755)
    ran = run(store, *words, "--core", str(path))
    assert ran.code == code
    assert "[31m" in ran.out + ran.err and "\x1b" not in ran.out + ran.err


def test_a_core_that_is_not_there_is_an_error(store: CoshStore) -> None:
    ran = run(store, "list", "--core", "/nonexistent")
    assert ran.code == 69
    assert "(transport)" in ran.err


@pytest.mark.parametrize("empty", ["", " "])
def test_a_workspace_without_a_name_is_not_the_current_directory(store: CoshStore, empty: str) -> None:
    ran = ctx("cosh", "clear-all", "--yes", "--workspace", empty, environment={**os.environ, "HOME": str(store.home)})
    assert (ran.code, ran.out) == (2, "") and "--workspace: it is empty" in ran.err


@pytest.mark.parametrize(
    "words", [["list"], ["inspect", session_id(1)], ["validate", session_id(1)], ["clear-all", "--yes"]]
)
def test_json_is_one_value_with_the_keys_that_are_documented(store: CoshStore, words: list[str]) -> None:
    ran = run(store, *words, "--json")
    assert (ran.code, ran.err, ran.out.count("\n")) == (0, "", 1)
    text = (PROJECT / "docs/json.md").read_text()
    section = text.split(f"`ctx cosh {words[0]} --json`")[1].split("\n## ")[0]
    assert set(json.loads(ran.out)) <= set(re.findall(r'"(\w+)"', section))
