"""``ctx agent session export``: sessions as files that their owner alone may read (spec 4.2)."""

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from mountctl.exporting import FORMATS
from tests.commands.conftest import Agent

BIG = "é" * (1 << 20)


def write_lines(path: Path, *messages: object) -> None:
    path.write_text("".join(json.dumps(message) + "\n" for message in messages))


@pytest.mark.parametrize("words", [("agent", "export"), ("agent", "session", "export")])
def test_jsonl_is_messages_jsonl(agent: Agent, tmp_path: Path, words: tuple[str, ...]) -> None:
    agent.new("talk", "other")
    line = agent.say("talk", "user", "one")
    ran = agent.run(*words, agent.name, "-s", "talk", "--to", "jsonl", str(tmp_path / "out"))
    assert ran == (0, f"{tmp_path}/out/talk.jsonl\n", "")
    assert (tmp_path / "out/talk.jsonl").read_text() == line


def test_without_a_session_it_is_the_current_one(agent: Agent, tmp_path: Path) -> None:
    agent.new("first", "second")
    assert agent.run("agent", "export", agent.name, "--to", "jsonl", str(tmp_path)).code == 0
    assert os.listdir(tmp_path) == ["first.jsonl"]


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "small"}, {"role": "assistant", "content": "answer"}],
        [{"role": "user", "content": BIG}],
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": BIG}]}],
        [{"role": "tool", "content": [{"type": "tool_result", "tool_call_id": "t", "content": BIG}]}],
        [{"role": "user", "content": [{"type": "text", "text": "x" * 400_000}] * 4}],
    ],
)
def test_import_export_import_is_empty_work(agent: Agent, tmp_path: Path, messages: list[object]) -> None:
    source, out = tmp_path / "talk.jsonl", tmp_path / "out"
    write_lines(source, *messages)
    assert agent.run("agent", "import", agent.name, "--from", "jsonl", str(source)).code == 0
    assert agent.run("agent", "export", agent.name, "-s", "talk", "--to", "jsonl", str(out)).code == 0
    ran = agent.run("agent", "import", agent.name, "--from", "jsonl", str(out))
    assert (ran.code, ran.err) == (0, "") and f" 0 lines added, {len(messages)} already there" in ran.out


def test_what_is_in_blobs_is_put_back(agent: Agent, tmp_path: Path) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": BIG}]}
    write_lines(tmp_path / "talk.jsonl", message)
    agent.run("agent", "import", agent.name, "--from", "jsonl", str(tmp_path / "talk.jsonl"))
    agent.run("agent", "export", agent.name, "-s", "talk", "--to", "jsonl", str(tmp_path / "out"))
    assert json.loads((tmp_path / "out/talk.jsonl").read_text()) == message


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_blob_that_is_gone_or_changed_fails_the_export_and_leaves_what_was_there(
    agent: Agent, tmp_path: Path, damage: str
) -> None:
    write_lines(tmp_path / "talk.jsonl", {"role": "user", "content": BIG})
    agent.run("agent", "import", agent.name, "--from", "jsonl", str(tmp_path / "talk.jsonl"))
    (blob,) = (agent.directory.parent / "data/blob").iterdir()
    if damage == "gone":
        blob.unlink()
    else:
        blob.write_bytes(b"{}")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/talk.jsonl").write_text("older")
    ran = agent.run("agent", "export", agent.name, "-s", "talk", "--to", "jsonl", str(tmp_path / "out"))
    assert ran.code == 1 and "blob" in ran.err
    assert [path.read_text() for path in (tmp_path / "out").iterdir()] == ["older"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "blob", "path": "../../secret", "sha256": "0" * 64, "bytes": 1},
        {"type": "blob", "path": "data/blob/../x", "sha256": "../x", "bytes": 1},
        {"type": "blob"},
    ],
)
def test_a_part_that_only_looks_like_a_blob_is_exported_as_it_is(agent: Agent, tmp_path: Path, part: object) -> None:
    agent.new("talk")
    line = agent.say("talk", "user", [part])
    assert agent.run("agent", "export", agent.name, "-s", "talk", "--to", "jsonl", str(tmp_path)).code == 0
    assert (tmp_path / "talk.jsonl").read_text() == line


def test_a_blob_that_is_no_part_fails_the_export(agent: Agent, tmp_path: Path) -> None:
    agent.new("talk")
    digest = hashlib.sha256(b"{").hexdigest()
    (agent.directory.parent / "data/blob").mkdir(parents=True)
    (agent.directory.parent / f"data/blob/{digest}").write_bytes(b"{")
    agent.say("talk", "user", [{"type": "blob", "path": f"data/blob/{digest}", "sha256": digest, "bytes": 1}])
    ran = agent.run("agent", "export", agent.name, "-s", "talk", "--to", "jsonl", str(tmp_path))
    assert (ran.code, ran.out, os.listdir(tmp_path)) == (1, "", []) and "messages.jsonl:1" in ran.err


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
@pytest.mark.parametrize("form", sorted(FORMATS))
def test_what_is_exported_is_for_its_owner_alone(agent: Agent, tmp_path: Path, form: str, umask: int) -> None:
    agent.new("talk")
    agent.say("talk", "user", "hi")
    agent.say("talk", "assistant", "hello")
    before = os.umask(umask)
    try:
        assert agent.run("agent", "export", agent.name, "-s", "talk", "--to", form, str(tmp_path / "out")).code == 0
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert modes == {0o600}


def test_a_link_at_the_target_is_replaced_and_not_followed(agent: Agent, tmp_path: Path) -> None:
    agent.new("talk")
    agent.say("talk", "user", "hi")
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/talk.jsonl").symlink_to(tmp_path / "mine")
    assert agent.run("agent", "export", agent.name, "-s", "talk", "--to", "jsonl", str(tmp_path / "out")).code == 0
    assert (tmp_path / "mine").read_text() == "mine" and not (tmp_path / "out/talk.jsonl").is_symlink()


@pytest.mark.parametrize("name", ["..", "a/b", "", "index", "../talk", "/etc", "missing", "a\nb", "x" * 300, "é"])
def test_a_name_never_leads_elsewhere(agent: Agent, tmp_path: Path, name: str) -> None:
    agent.new("talk")
    ran = agent.run("agent", "export", agent.name, "-s", name, "--to", "jsonl", str(tmp_path / "out"))
    assert ran.code in (1, 2) and ran.err.startswith("ctx: ") and ran.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("--to", "nonsense"), 2), ((), 2), (("--to", "jsonl"), 1)],
)
def test_bad_usage_and_a_target_that_is_no_directory(
    agent: Agent, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    agent.new("talk")
    (tmp_path / "file").write_text("")
    ran = agent.run("agent", "export", agent.name, *arguments, str(tmp_path / "file"))
    assert (ran.code, ran.out) == (code, "") and ran.err.startswith("ctx: ")


@pytest.mark.parametrize("form", ["atif", "html", "markdown"])
def test_every_form_has_what_was_in_a_blob(agent: Agent, tmp_path: Path, form: str) -> None:
    text = "needle" + "x" * (1 << 20)
    write_lines(tmp_path / "talk.jsonl", {"role": "user", "content": text})
    agent.run("agent", "import", agent.name, "--from", "jsonl", str(tmp_path / "talk.jsonl"))
    ran = agent.run("agent", "export", agent.name, "-s", "talk", "--to", form, str(tmp_path / "out"))
    assert ran.code == 0 and Path(ran.out.strip()).parent == tmp_path / "out"
    assert text in Path(ran.out.strip()).read_text()


def test_markdown_is_the_transcript(agent: Agent, tmp_path: Path) -> None:
    agent.new("talk")
    agent.say("talk", "user", "# hi <b>")
    agent.say("talk", "tool", [{"type": "tool_result", "tool_call_id": "c", "content": "x"}])
    assert agent.run("agent", "export", agent.name, "-s", "talk", "--to", "markdown", str(tmp_path)).code == 0
    assert (tmp_path / "talk.md").read_bytes() == (agent.directory / "talk/context/transcript.md").read_bytes()


def test_atif_is_the_trajectory_and_of_nothing_there_is_none(agent: Agent, tmp_path: Path) -> None:
    agent.new("talk", "empty")
    agent.say("talk", "user", "hi")
    codes = [
        agent.run("agent", "export", agent.name, "-s", session, "--to", "atif", str(tmp_path / "out")).code
        for session in ("talk", "empty")
    ]
    trajectory = agent.run("agent", "trajectory", agent.name, "-s", "talk").out
    assert codes == [0, 69] and os.listdir(tmp_path / "out") == ["talk.trajectory.json"]
    assert (tmp_path / "out/talk.trajectory.json").read_text() == trajectory
