"""``ctx agent import``: sessions out of transcripts, repeatable, whole or not at all (spec 4.2)."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.commands.claude_lines import UUID, claude_line
from tests.commands.conftest import Agent
from tests.commands.running import ctx
from tests.mounting import PROJECT

GOOD = '{"role":"user","content":"one"}\n{"role":"assistant","content":"two"}\n'


def test_a_jsonl_file_is_a_session_with_the_same_bytes(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "talk.jsonl").write_text(GOOD)
    ran = agent.run("agent", "import", agent.name, "--from", "jsonl", str(tmp_path / "talk.jsonl"))
    assert ran == (0, "1 session: 2 lines added, 0 already there\n", "")
    assert (agent.directory / "talk/messages.jsonl").read_text() == GOOD


def test_importing_again_adds_only_what_is_new_and_keeps_what_others_added(agent: Agent, tmp_path: Path) -> None:
    source = tmp_path / "talk.jsonl"
    source.write_text(GOOD)
    command = ("agent", "import", agent.name, "--from", "jsonl", str(source))
    agent.run(*command)
    mine = agent.say("talk", "user", "mine")
    more = '{"role":"user","content":"three"}\n{"role":"user","content":"three"}\n'
    source.write_text(GOOD + more)
    outs = [agent.run(*command).out for _ in range(2)]
    assert outs == ["1 session: 2 lines added, 2 already there\n", "1 session: 0 lines added, 4 already there\n"]
    assert (agent.directory / "talk/messages.jsonl").read_text() == GOOD + mine + more


def test_a_session_that_came_from_elsewhere_is_not_added_to(agent: Agent, tmp_path: Path) -> None:
    agent.new("talk")
    mine = agent.say("talk", "user", "mine")
    (tmp_path / "talk.jsonl").write_text(GOOD)
    ran = agent.run("agent", "import", agent.name, "--from", "jsonl", str(tmp_path / "talk.jsonl"))
    assert ran.code == 1 and "not an import of this file" in ran.err
    assert (agent.directory / "talk/messages.jsonl").read_text() == mine


def test_an_unreadable_line_leaves_its_session_out_whole_and_no_other(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text(GOOD + "{\n" + GOOD)
    (tmp_path / "good.jsonl").write_text(GOOD)
    ran = agent.run("agent", "import", agent.name, "--from", "jsonl", str(tmp_path))
    assert ran.code == 1
    assert f"{tmp_path}/bad.jsonl:3: " in ran.err
    assert ran.out == "1 session: 2 lines added, 0 already there, 1 session left out\n"
    assert sorted(os.listdir(agent.directory)) == ["good", "index"]


def test_skip_bad_leaves_out_the_line_alone(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text(GOOD + "{\n" + GOOD)
    ran = agent.run("agent", "import", agent.name, "--from", "jsonl", "--skip-bad", str(tmp_path))
    assert (ran.code, ran.out) == (0, "1 session: 4 lines added, 0 already there, 1 unreadable line skipped\n")
    assert f"{tmp_path}/bad.jsonl:3: " in ran.err
    assert (agent.directory / "bad/messages.jsonl").read_text() == GOOD + GOOD


def test_a_claude_code_session_keeps_cwd_model_time_calls_and_results(agent: Agent, tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "file"}
    conversation = claude_line("user", "go") + claude_line("assistant", [call]) + claude_line("user", [result])
    (tmp_path / "project").mkdir()
    (tmp_path / f"project/{UUID}.jsonl").write_text(conversation)
    ran = agent.run("agent", "import", agent.name, "--from", "claude-code", str(tmp_path))
    session = agent.directory / UUID
    messages = [json.loads(line) for line in (session / "messages.jsonl").read_text().splitlines()]
    assert ran.code == 0
    assert (session / "cwd").read_text() == "/w\n"
    assert json.loads((session / "meta.json").read_text())["model"] == "model-1"
    assert [message["role"] for message in messages] == ["user", "tool"]
    assert {message["timestamp"] for message in messages} == {"2026-01-01T00:00:00Z"}
    assert (agent.directory / f"index/by-uuid/{UUID}").read_text() == f"{UUID}\n"
    assert agent.run("agent", "import", agent.name, "--from", "claude-code", str(tmp_path)).out == (
        "1 session: 0 lines added, 5 already there\n"
    )


def test_side_chains_branches_and_files_of_others_become_children(agent: Agent, tmp_path: Path) -> None:
    lines = [
        claude_line("user", "go", uuid="u1"),
        claude_line("assistant", "ok", uuid="a1", parentUuid="u1"),
        claude_line("user", "task", uuid="s1", isSidechain=True),
        claude_line("assistant", "did", uuid="s2", parentUuid="s1", isSidechain=True),
        claude_line("user", "more", uuid="u2", parentUuid="a1"),
        claude_line("user", "other", uuid="u3", parentUuid="a1"),
    ]
    (tmp_path / "p").mkdir()
    (tmp_path / f"p/{UUID}.jsonl").write_text("".join(lines))
    (tmp_path / "p/agent-7f.jsonl").write_text(claude_line("user", "look", uuid="x", isSidechain=True))
    command = ("agent", "session", "import", agent.name, "--from", "claude-code", str(tmp_path))
    assert agent.run(*command) == (0, "4 sessions: 15 lines added, 0 already there\n", "")
    assert agent.run(*command) == (0, "4 sessions: 0 lines added, 15 already there\n", "")
    assert agent.texts(UUID) == ["go", "ok", "more"]
    mine = os.getxattr(agent.directory / UUID, "user.ctx.uuid")
    children = sorted(name for name in os.listdir(agent.directory) if name not in (UUID, "index"))
    assert {os.getxattr(agent.directory / name, "user.ctx.parent") for name in children} == {mine}
    texts = {tuple(agent.texts(name)): os.getxattr(agent.directory / name, "user.ctx.at") for name in children}
    assert texts == {("task", "did"): b"0", ("go", "ok", "other"): b"4", ("look",): b"0"}
    assert all(name == "agent-7f" or name.startswith(f"{UUID}+") for name in children)


def test_children_of_the_same_name_of_two_sessions_are_two(agent: Agent, tmp_path: Path) -> None:
    for number in "12":
        session = UUID[:-1] + number
        (tmp_path / number).mkdir()
        lines = claude_line("user", f"go {number}", sessionId=session)
        (tmp_path / number / f"{session}.jsonl").write_text(lines)
        lines = claude_line("user", f"look {number}", sessionId=session, isSidechain=True)
        (tmp_path / number / "agent-1.jsonl").write_text(lines)
    command = ("agent", "import", agent.name, "--from", "claude-code", str(tmp_path))
    assert agent.run(*command) == (0, "4 sessions: 12 lines added, 0 already there\n", "")
    assert agent.run(*command) == (0, "4 sessions: 0 lines added, 12 already there\n", "")
    children = [name for name in os.listdir(agent.directory) if name.startswith("agent-1")]
    assert sorted(agent.texts(name)[0] for name in children) == ["look 1", "look 2"]


def test_a_branch_that_came_later_begins_where_it_did(agent: Agent, tmp_path: Path) -> None:
    source = tmp_path / f"{UUID}.jsonl"
    talk = [claude_line("user", "go", uuid="u1"), claude_line("assistant", "ok", uuid="a1", parentUuid="u1")]
    source.write_text("".join([*talk, claude_line("user", "more", uuid="u2", parentUuid="a1")]))
    command = ("agent", "import", agent.name, "--from", "claude-code", str(source))
    agent.run(*command)
    agent.say(UUID, "user", "mine")
    with source.open("a") as file:
        file.write(claude_line("user", "other", uuid="u3", parentUuid="a1"))
    assert agent.run(*command).out.startswith("2 sessions: 3 lines added, ")
    (child,) = (name for name in os.listdir(agent.directory) if "+" in name)
    assert (agent.texts(UUID), agent.texts(child)) == (["go", "ok", "more", "mine"], ["go", "ok", "other"])


def test_codex_sessions_live_and_archived_become_sessions(agent: Agent, tmp_path: Path) -> None:
    def wrapped(kind: str, **payload: object) -> str:
        return json.dumps({"timestamp": "2026-03-01T10:00:00Z", "type": kind, "payload": payload}) + "\n"

    def said(role: str, words: str) -> dict[str, object]:
        return {"type": "message", "role": role, "content": [{"type": "input_text", "text": words}]}

    spawned = "0b5f6f0e-4c1d-4a57-9a0a-3d1f1a2b3c4d"
    live, archived = tmp_path / "sessions/2026/03/01", tmp_path / "archived_sessions"
    live.mkdir(parents=True)
    archived.mkdir()
    source = {"agent": {"thread_spawn": {"parent_thread_id": UUID}}}
    (live / f"rollout-2026-03-01T09-00-00-{spawned}.jsonl").write_text(
        wrapped("session_meta", id=spawned, source=source) + wrapped("response_item", **said("user", "look"))
    )
    header = {"id": UUID, "timestamp": "2026-03-01T10:00:00Z", "instructions": None}
    items = [said(role, f"{n} {'x' * 500}") for n in range(1000) for role in ("user", "assistant")]
    (archived / f"rollout-2026-03-01T10-00-00-{UUID}.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in (header, *items))
    )
    command = ("agent", "import", agent.name, "--from", "codex", str(tmp_path))
    assert agent.run(*command) == (0, "2 sessions: 2001 lines added, 0 already there\n", "")
    assert agent.run(*command) == (0, "2 sessions: 0 lines added, 2001 already there\n", "")
    mine = os.getxattr(agent.directory / UUID, "user.ctx.uuid")
    assert os.getxattr(agent.directory / spawned, "user.ctx.parent") == mine
    assert (agent.directory / f"index/by-uuid/{spawned}").read_text() == f"{spawned}\n"


def test_a_copied_session_directory_is_the_same_session_elsewhere(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "talk.jsonl").write_text(GOOD + json.dumps({"role": "user", "content": "x" * (1 << 20)}) + "\n")
    agent.run("agent", "import", agent.name, "--from", "jsonl", str(tmp_path / "talk.jsonl"))
    (agent.directory / "talk/cwd").write_text("/w\n")
    (agent.directory / "talk/state").write_text("done\n")
    copied = tmp_path / "copy"
    for part in ("session", "data"):
        shutil.copytree(agent.directory.parent / part, copied / part)
    other = Agent(agent.mount, f"{agent.name}b")
    command = ("agent", "import", other.name, "--from", "cortexfs", str(copied))
    assert other.run(*command) == (0, "1 session: 5 lines added, 0 already there\n", "")
    assert other.run(*command) == (0, "1 session: 0 lines added, 5 already there\n", "")
    for name in ("messages.jsonl", "events.jsonl", "cwd", "state", "meta.json", "latest.md"):
        assert (other.directory / "talk" / name).read_bytes() == (agent.directory / "talk" / name).read_bytes()
    (blob,) = (other.directory.parent / "data/blob").iterdir()
    assert blob.read_bytes() == (agent.directory.parent / "data/blob" / blob.name).read_bytes()


def test_json_says_what_was_done(agent: Agent, tmp_path: Path) -> None:
    for name, content in (("a", GOOD), ("b", GOOD + "{\n" * 1500), ("c", "{\n"), ("d", "")):
        (tmp_path / f"{name}.jsonl").write_text(content)
    command = ("agent", "import", agent.name, "--json", "--from", "jsonl", str(tmp_path))
    ran = agent.run(*command)
    assert (ran.code, json.loads(ran.out)) == (
        1,
        {"sessions": 1, "added": 2, "present": 0, "skipped": 0, "empty": 1, "archived": 0, "left_out": 2},
    )
    assert "b.jsonl: 500 more lines like these" in ran.err and "left out: 1500 unreadable lines" in ran.err
    ran = agent.run(*command, "--skip-bad")
    assert (ran.code, json.loads(ran.out)) == (
        0,
        {"sessions": 2, "added": 2, "present": 2, "skipped": 1501, "empty": 2, "archived": 0, "left_out": 0},
    )


@pytest.mark.parametrize("unstorable", ["\0", "\ud800", "\udc00\ud800"])
def test_what_no_line_may_hold_costs_no_more_than_itself(agent: Agent, tmp_path: Path, unstorable: str) -> None:
    source = tmp_path / f"{UUID}.jsonl"
    source.write_text(claude_line("user", "before") + claude_line("user", f"a{unstorable}\U0001f600\\u0000"))
    command = ("agent", "import", agent.name, "--from", "claude-code", str(source))
    ran = agent.run(*command)
    assert (ran.code, ran.err) == (0, f"{source}:2: NUL or an unpaired surrogate in it became U+FFFD\n")
    messages = [json.loads(line) for line in (agent.directory / UUID / "messages.jsonl").read_text().splitlines()]
    replaced = "\ufffd" * len(unstorable)
    assert [message["content"] for message in messages] == ["before", f"a{replaced}\U0001f600\\u0000"]
    assert agent.run(*command).out.startswith("1 session: 0 lines added")


def test_what_was_archived_is_not_revived(agent: Agent, tmp_path: Path) -> None:
    source = tmp_path / f"{UUID}.jsonl"
    prompts = [claude_line("user", text, uuid=text, parentUuid=parent) for text, parent in (("a", None), ("b", "a"))]
    source.write_text("".join(prompts) + claude_line("user", "side", uuid="s", isSidechain=True))
    (tmp_path / "stays").mkdir()
    other = tmp_path / "stays/other.jsonl"
    other.write_text(claude_line("user", "other", sessionId="other"))
    command = ("agent", "import", agent.name, "--from", "claude-code", str(source), str(other))
    agent.run(*command)
    child = next(path.name for path in agent.directory.iterdir() if path.name.startswith(f"{UUID}+"))
    agent.run("agent", "session", "select", agent.name, "other")
    agent.run("agent", "session", "archive", agent.name, child)
    with source.open("a") as file:
        file.write(claude_line("user", "more", uuid="c", parentUuid="b"))
    ran = agent.run(*command)
    assert (ran.code, ran.err) == (0, f"{source}: session {child} is archived: it stays as it is\n")
    assert ran.out == "2 sessions: 1 line added, 7 already there, 1 session archived and left as they are\n"
    place = f"{agent.directory.parents[2]}/archived_sessions/deep"
    agent.run("agent", "session", "archive", agent.name, UUID, "--archive-dir", place)
    ran = agent.run(*command, "--json")
    assert (ran.code, ran.err) == (0, f"{source}: session {UUID} is archived: it stays as it is\n")
    assert json.loads(ran.out)["archived"] == 1
    assert sorted(path.name for path in agent.directory.iterdir()) == ["index", "other"]


@pytest.mark.parametrize(
    ("name", "more", "code"),
    [("ctx", (), 2), ("a/b", (), 2), ("x.d", (), 2), ("model:a/b/c", (), 2), ("x", ("--space", "nowhere"), 1)],
)
def test_a_place_that_cannot_be_fails_once(
    agent: Agent, tmp_path: Path, name: str, more: tuple[str, ...], code: int
) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_text(GOOD)
    ran = agent.run("agent", "import", name, *more, "--from", "jsonl", str(tmp_path))
    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1)


def test_an_agent_that_is_a_model_has_sessions_and_no_blobs(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "big.jsonl").write_text(GOOD + json.dumps({"role": "user", "content": "x" * (1 << 20)}) + "\n")
    (tmp_path / "talk.jsonl").write_text(GOOD)
    ran = agent.run("agent", "import", f"model:p/{agent.name}", "--from", "jsonl", str(tmp_path))
    assert (ran.code, ran.out) == (1, "1 session: 2 lines added, 0 already there, 1 session left out\n")
    model = agent.directory.parents[2] / f"model/p/{agent.name}.d/session"
    assert sorted(os.listdir(model)) == ["index", "talk"]


def test_the_source_that_was_written_last_leads_the_list(agent: Agent, tmp_path: Path) -> None:
    for name, mtime in (("b", 100), ("a", 300), ("c", 200)):
        (tmp_path / f"{name}.jsonl").write_text(GOOD)
        os.utime(tmp_path / f"{name}.jsonl", (mtime, mtime))
    agent.run("agent", "import", agent.name, "--from", "jsonl", str(tmp_path))
    assert (agent.directory / "index/list").read_text() == "a\nc\nb\n"


@pytest.mark.parametrize("form", ["claude-code", "codex", "jsonl"])
def test_lines_that_nest_deeply_are_unreadable_and_no_more(agent: Agent, tmp_path: Path, form: str) -> None:
    deep = "[" * 100_000
    nested = '{"a":' * 500 + "1" + "}" * 500
    (tmp_path / "x.jsonl").write_text(
        f'{{"type":"user","role":"user","content":{deep}\n'
        f'{{"type":"user","role":"user","message":{{"content":[{{"type":"x","y":{nested}}}]}},"content":[{{"type":"x","y":{nested}}}]}}\n'
    )
    ran = agent.run("agent", "import", agent.name, "--from", form, "--skip-bad", str(tmp_path))
    assert ran.code == 0 and "x.jsonl:1: " in ran.err


@pytest.mark.parametrize("form", ["claude-code", "codex", "cortexfs", "jsonl"])
def test_a_path_without_sources_fails_by_name(agent: Agent, tmp_path: Path, form: str) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        ran = agent.run("agent", "import", agent.name, "--from", form, str(path))
        assert (ran.code, ran.out) == (1, "") and str(path) in ran.err and ran.err.startswith("ctx: ")


def test_what_is_no_file_of_a_directory_is_left_alone(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/loop").symlink_to("..")
    (tmp_path / "self.jsonl").symlink_to("self.jsonl")
    (tmp_path / "gone.jsonl").symlink_to("nowhere")
    (tmp_path / "directory.jsonl").mkdir()
    os.mkfifo(tmp_path / "fifo.jsonl")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/sub/odd\xff\n\x1b[31m.jsonl")).write_text(GOOD)
    ran = agent.run("agent", "import", agent.name, "--from", "jsonl", str(tmp_path))
    assert ran == (0, "1 session: 2 lines added, 0 already there\n", "")
    ran = agent.run("agent", "import", agent.name, "--from", "jsonl", str(tmp_path / "fifo.jsonl"))
    assert (ran.code, ran.err) == (1, f"ctx: {tmp_path}/fifo.jsonl is neither a file nor a directory\n")


def test_sources_whose_names_would_be_one_do_not_mix(agent: Agent, tmp_path: Path) -> None:
    names = ["a b.jsonl", "a@b.jsonl", "caf\u00e9.jsonl", "cafe\u0301.jsonl", "x/talk.jsonl", "y/talk.jsonl"]
    for number, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f'{{"role":"user","content":"{number}"}}\n')
    ran = agent.run("agent", "import", agent.name, "--from", "jsonl", str(tmp_path))
    assert ran.code == 1 and f"{tmp_path}/y/talk.jsonl: left out: its session talk is that of" in ran.err
    sessions = [name for name in os.listdir(agent.directory) if name != "index"]
    assert sorted(text for name in sessions for text in agent.texts(name)) == ["0", "1", "2", "3", "4"]
    assert len(sessions) == 5


def test_entries_have_the_times_of_the_source(agent: Agent, tmp_path: Path) -> None:
    times = ["2025-06-14T10:00:00Z", "2025-06-14T10:00:30.500Z", "no time"]
    lines = [claude_line("user", "go", uuid=str(n), timestamp=text) for n, text in enumerate(times)]
    (tmp_path / f"{UUID}.jsonl").write_text("".join(lines))
    assert agent.run("agent", "import", agent.name, "--from", "claude-code", str(tmp_path)).code == 0
    session = agent.directory / UUID
    assert [(session / name).read_text() for name in ("created_at", "updated_at")] == ["1749895200\n", "1749895230\n"]


def test_without_the_socket_entries_have_the_time_of_the_import_and_the_command_says_so(
    agent: Agent, tmp_path: Path
) -> None:
    lines = claude_line("user", "go", uuid="u1") + claude_line("assistant", "ok", uuid="a1", parentUuid="u1")
    (tmp_path / f"{UUID}.jsonl").write_text(lines + claude_line("assistant", "hey", uuid="a2", parentUuid="u1"))
    command = ("agent", "import", agent.name, "--from", "claude-code", str(tmp_path))
    root = tmp_path / "root"  # a view of the mount in which only the home is
    (root / "agent").mkdir(parents=True)
    (root / "home").symlink_to(agent.mount.path / "home")
    ran = ctx(*command, environment={**agent.mount.environment, "CTX_ROOT": str(root)})
    assert (ran.code, ran.out) == (0, "2 sessions: 7 lines added, 0 already there\n")
    assert ran.err == "ctx: the mount has no agent/ctx.sock: entries get the time of this import\n"
    assert agent.run(*command) == (0, "2 sessions: 0 lines added, 7 already there\n", "")


def test_a_mount_with_a_long_path_has_a_socket_too(agent: Agent, tmp_path: Path) -> None:
    root = tmp_path / ("x" * 100)
    root.symlink_to(agent.mount.path)
    (tmp_path / "talk.jsonl").write_text(GOOD)
    command = ("agent", "import", agent.name, "--from", "jsonl", str(tmp_path / "talk.jsonl"))
    ran = ctx(*command, environment={**agent.mount.environment, "CTX_ROOT": str(root)})
    assert (ran.code, ran.err) == (0, "")


def test_a_uuid_that_is_known_leads_to_its_session_whatever_that_is_called(agent: Agent, tmp_path: Path) -> None:
    agent.new("renamed")
    (agent.directory / f"index/by-uuid/{UUID}").write_text("renamed\n")
    (tmp_path / f"{UUID}.jsonl").write_text(claude_line("user", "go"))
    agent.run("agent", "import", agent.name, "--from", "claude-code", str(tmp_path))
    assert (agent.directory / "renamed/messages.jsonl").read_text() != ""
    assert not (agent.directory / UUID).exists()


def test_a_part_that_is_too_big_for_a_line_is_kept_beside_the_log(agent: Agent, tmp_path: Path) -> None:
    big = "x" * (1 << 20)
    (tmp_path / "big.jsonl").write_text(json.dumps({"role": "user", "content": big}) + "\n")
    assert agent.run("agent", "import", agent.name, "--from", "jsonl", str(tmp_path)).code == 0
    (part,) = json.loads((agent.directory / "big/messages.jsonl").read_text())["content"]
    kept = (agent.directory.parent / part["path"]).read_bytes()
    assert (part["type"], part["bytes"]) == ("blob", len(kept))
    assert json.loads(kept)["text"] == big


def test_a_file_without_a_conversation_makes_no_session(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"type":"summary","summary":"s"}\n')
    ran = agent.run("agent", "import", agent.name, "--from", "claude-code", str(tmp_path))
    assert ran == (0, "0 sessions: 0 lines added, 0 already there, 1 file without a conversation\n", "")
    assert not agent.directory.exists()


def test_the_example_of_run_up_is_a_valid_import(agent: Agent) -> None:
    example = PROJECT / "mountctl/example/default.jsonl"
    assert agent.run("agent", "import", agent.name, "--from", "jsonl", str(example)).code == 0
    assert agent.run("agent", "output", agent.name).out.startswith("No: ")
