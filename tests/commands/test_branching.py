"""``ctx agent session branch|compact`` and ``ctx agent tree`` on a real mount (spec 4.1, 4.2, 2.4, 2.8)."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mountctl.ctx_session_branch  # noqa: F401  (for the chroot, which cannot import it)
from mountctl.ctx_agent_tree import tree
from mountctl.sessions import SessionRow
from tests.commands.conftest import Agent
from tests.commands.running import ctx, in_process
from tests.mounting import PROJECT
from tests.people import ALICE, chroot_with


def talk(agent: Agent, session: str = "s", lines: int = 3) -> bytes:
    """A session with so many messages; the bytes of its messages.jsonl."""
    agent.new(session)
    return "".join(agent.say(session, "user", f"{n}") for n in range(lines)).encode()


def cuts(agent: Agent, session: str = "s") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (agent.directory / session / "events.jsonl").read_bytes().splitlines()]


# branch


@pytest.mark.parametrize(("options", "kept"), [((), 3), (("--at", "3"), 3), (("--at", "1"), 1), (("--at", "0"), 0)])
def test_a_branch_holds_the_first_entries_and_its_place_is_printed(
    agent: Agent, options: tuple[str, ...], kept: int
) -> None:
    lines = talk(agent).splitlines(keepends=True)
    ran = agent.run("agent", "session", "branch", agent.name, "--name", "b", *options)
    assert ran == (0, f"{agent.directory}/b\n", "")
    assert (agent.directory / "b/messages.jsonl").read_bytes() == b"".join(lines[:kept])
    assert os.getxattr(agent.directory / "b", "user.ctx.at") == str(kept).encode()
    assert (agent.directory / "index/current").read_text() == "s\n"


def test_a_branch_has_a_name_of_its_own_unless_given_one(agent: Agent) -> None:
    long = "x" * 64
    agent.new("s", long)
    places = [agent.run("agent", "session", "branch", agent.name, "-s", name).out for name in ("s", "s", long)]
    names = [os.path.basename(place.strip()) for place in places]
    assert names[0] != names[1] and re.fullmatch(r"s\+[0-9a-f]{8}", names[0])
    assert re.fullmatch(r"x{55}\+[0-9a-f]{8}", names[2])
    assert all((agent.directory / name).is_dir() for name in names)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--name", "s"), 1, "has a session 's' already"),
        (("--at", "4"), 1, "s has 3 entries, --at 4 is beyond them"),
        (("--at", "9" * 18), 1, "is beyond them"),
        (("--at", "9" * 5000), 2, "--at"),
        (("--at", "-1"), 2, "--at"),
        (("--at", "1.5"), 2, "--at"),
        (("--at", "٣"), 2, "--at"),
        (("--name", "b 1"), 2, "invalid session name: b 1"),
        (("--name", "a/b"), 2, "invalid session name"),
        (("--name", "index"), 2, "invalid session name"),
        (("--name", ""), 2, "invalid session name"),
        (("-s", "nothing"), 1, "no session"),
        (("-s", "../s"), 2, "invalid session name"),
        (("--space", "nowhere"), 1, "no shared space"),
    ],
)
def test_a_branch_is_refused_whole(agent: Agent, words: tuple[str, ...], code: int, said: str) -> None:
    talk(agent)
    ran = agent.run("agent", "session", "branch", agent.name, *words)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("ctx: ") and ran.err.count("\n") == 1 and said in ran.err
    assert sorted(os.listdir(agent.directory)) == ["index", "s"]


def test_who_may_not_branch_is_told_so(agent: Agent) -> None:
    talk(agent)
    environment = {**agent.mount.environment, "CTX_HOME": str(agent.directory.parents[2])}
    reach = ["setpriv", "--reuid=1001", "--regid=1001", "--clear-groups"]
    reach += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    command = [*reach, sys.executable, "-m", "mountctl.ctx", "agent", "session", "branch", agent.name, "-s", "s"]
    ran = subprocess.run(command, env=environment, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert ran.returncode == 13 and "Permission denied" in ran.stderr


def test_nothing_but_a_ctxfs_mount_is_branched(agent: Agent, tmp_path: Path) -> None:
    session = tmp_path / "agent/coder/session/s"
    session.mkdir(parents=True)
    environment = {**agent.mount.environment, "CTX_HOME": str(tmp_path)}
    ran = ctx("agent", "session", "branch", "coder", "-s", "s", environment=environment)
    assert (ran.code, ran.err) == (69, f"ctx: {session} is not on a ctxfs mount\n")
    assert os.listxattr(session) == []


# compact

SHORT = [{"role": "user", "content": "short"}]
TWO = [*SHORT, {"role": "assistant", "content": [{"type": "text", "text": "é"}]}]


@pytest.mark.parametrize(
    ("content", "summary"),
    [
        (json.dumps(TWO), TWO),
        (json.dumps(TWO, indent=1), TWO),
        ("".join(json.dumps(message) + "\n" for message in TWO), TWO),
        ("\n".join(json.dumps(message, ensure_ascii=False) for message in TWO), TWO),
        ('{"role":"user","content":"a\u2028b"}\n', [{"role": "user", "content": "a\u2028b"}]),
        ("They met.\nThen\tleft.\n", [{"role": "user", "content": "They met.\nThen\tleft."}]),
        ("[]", []),
    ],
    ids=range(7),
)
@pytest.mark.parametrize("way", ["file", "stdin"])
def test_a_summary_is_messages_or_text(agent: Agent, tmp_path: Path, content: str, summary: object, way: str) -> None:
    talk(agent)
    file = tmp_path / "summary"
    file.write_text(content)
    words = ["agent", "session", "compact", agent.name, "--summary", str(file) if way == "file" else "-"]
    command = [sys.executable, "-m", "mountctl.ctx", *words]
    with file.open() as stdin:
        ran = subprocess.run(
            command, stdin=stdin, env=agent.mount.environment, cwd=PROJECT, capture_output=True, text=True, check=False
        )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert cuts(agent) == [{"type": "cut", "before": 3, "reason": "manual", "summary": summary}]


def test_what_is_summed_up_and_why_can_be_said(agent: Agent, tmp_path: Path) -> None:
    talk(agent)
    (tmp_path / "f").write_text(json.dumps(SHORT))
    options = ("--summary", str(tmp_path / "f"), "--before", "2", "--reason", "context full")
    assert agent.run("agent", "session", "compact", agent.name, *options).code == 0
    assert cuts(agent) == [{"type": "cut", "before": 2, "reason": "context full", "summary": SHORT}]


@pytest.mark.parametrize("size", [65_000, 65_600, 300_000, 1_048_000])
def test_a_cut_of_any_size_is_one_entry(agent: Agent, tmp_path: Path, size: int) -> None:
    talk(agent)
    (tmp_path / "f").write_text("x" * size)
    assert agent.run("agent", "session", "compact", agent.name, "--summary", str(tmp_path / "f")) == (0, "", "")
    assert [len(cut["summary"][0]["content"]) for cut in cuts(agent)] == [size]
    assert os.getxattr(agent.directory / "s", "user.ctx.n") == b"4"


@pytest.mark.parametrize(
    ("content", "options", "code", "said"),
    [
        (b"x", ("--before", "4"), 1, "the session has 3 entries, --before 4 is beyond them"),
        (b"x", ("--before", "-1"), 2, "--before"),
        (b"x", ("--before", "true"), 2, "--before"),
        (b"[{", (), 1, "not JSON"),
        (b'[{"role":"user","content":"a"}] x', (), 1, "not JSON"),
        (b"[" * 5000, (), 1, "ctx: "),
        (b"[1]", (), 1, "summary"),
        (b'[{"content":"a"}]', (), 1, "summary"),
        (b'[{"role":"user","content":"\\ud800"}]', (), 1, "cannot be recorded"),
        (b"\xff", (), 1, "UTF-8"),
        (b" \n", (), 1, "the summary is empty"),
        (b"x" * (1 << 20), (), 1, "1 MiB"),
        (b"x", ("-s", "nothing"), 1, "no session"),
    ],
    ids=range(13),
)
def test_a_cut_is_refused_whole(
    agent: Agent, tmp_path: Path, content: bytes, options: tuple[str, ...], code: int, said: str
) -> None:
    talk(agent)
    (tmp_path / "f").write_bytes(content)
    ran = agent.run("agent", "session", "compact", agent.name, "--summary", str(tmp_path / "f"), *options)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("ctx: ") and ran.err.count("\n") == 1 and said in ran.err
    assert cuts(agent) == []


def test_a_hundred_compactions_add_a_hundred_cuts_and_nothing_else(agent: Agent) -> None:
    """Field report 11: a compaction that copies the history makes files of tens of GB."""
    said = talk(agent, lines=50)
    session, grown = agent.directory / "s", []
    for n in range(100):
        cut = json.dumps({"before": n, "reason": "r", "summary": SHORT}).encode()
        before = (session / "events.jsonl").read_bytes()
        os.setxattr(session, "user.ctx.compact", cut)
        after = (session / "events.jsonl").read_bytes()
        assert after.startswith(before) and after.count(b"\n") == n + 1
        grown.append(len(after) - len(before) - len(str(n)))
    assert len(set(grown)) == 1
    assert (session / "messages.jsonl").read_bytes() == said
    assert os.getxattr(session, "user.ctx.n") == b"150"


# tree


def rows(*sessions: tuple[str, str | None, int | None]) -> list[SessionRow]:
    return [SessionRow(name, f"id-{name}", "idle", 0, 0, 0, "/", parent, at) for name, parent, at in sessions]


def test_branches_follow_their_parent_in_the_order_in_which_they_begin() -> None:
    found = rows(
        ("b9", "id-a", 9),
        ("z", None, None),
        ("a", None, None),
        ("b0", "id-a", 0),
        ("c", "id-b0", 1),
        ("o", "id-gone", 2),
    )
    assert [(len(node.rails), node.row.name) for node in tree(found)] == [
        (0, "z"),
        (0, "a"),
        (1, "b0"),
        (2, "c"),
        (1, "b9"),
        (0, "o"),
    ]


def test_a_chain_of_branches_may_be_long() -> None:
    chain = rows(("s0", None, None), *((f"s{n}", f"id-s{n - 1}", n) for n in range(1, 3000)))
    assert [len(node.rails) for node in tree(reversed(chain))] == list(range(3000))


def family(agent: Agent) -> None:
    """A session with two branches, one of which has one, and a branch whose parent was archived."""
    talk(agent)
    for parent, name, at in (("s", "late", 2), ("s", "early", 1), ("early", "child", 0), ("late", "orphan", 1)):
        options = ("-s", parent, "--name", name, "--at", str(at))
        assert agent.run("agent", "session", "branch", agent.name, *options).code == 0
    archive = agent.directory.parents[2] / "archived_sessions" / agent.name
    archive.mkdir(parents=True)
    (agent.directory / "late").rename(archive / "late")
    agent.say("orphan", "user", "the last word")


def test_the_tree_for_people(agent: Agent) -> None:
    family(agent)
    out = agent.run("agent", "tree", agent.name).out
    late = (agent.directory.parents[2] / "archived_sessions" / agent.name / "late").resolve()
    id = os.getxattr(late, "user.ctx.uuid").decode()
    assert [re.sub(r", [0-9TZ:-]+$", "", line) for line in out.splitlines()] == [
        f"orphan  of {id} at 1, 2 entries, idle",
        "s  3 entries, idle",
        "└─ early  at 1, 1 entry, idle",
        "   └─ child  at 0, 0 entries, idle",
    ]


def test_the_tree_in_json(agent: Agent) -> None:
    family(agent)
    found = json.loads(agent.run("agent", "tree", agent.name, "--json").out)["sessions"]
    assert [(row["depth"], row["name"], row["at"], row["entries"]) for row in found] == [
        (0, "orphan", 1, 2),
        (0, "s", None, 3),
        (1, "early", 1, 1),
        (2, "child", 0, 0),
    ]
    ids = {row["name"]: row["id"] for row in found}
    assert [row["parent"] for row in found[1:]] == [None, ids["s"], ids["early"]]


def test_the_tree_of_an_agent_that_is_not_there(agent: Agent) -> None:
    ran = agent.run("agent", "tree", "nobody")
    assert ran.code == 1 and "there is no 'nobody'" in ran.err


# everywhere


def test_models_and_shared_spaces_have_branches_too(agent: Agent) -> None:
    space = agent.mount.path / "shared" / agent.name
    space.mkdir()
    for owner, options in ((f"model:p/{agent.name}", ()), ("coder", ("--space", agent.name))):
        assert agent.run("agent", "session", "new", owner, "s", *options).code == 0
        assert agent.run("agent", "session", "branch", owner, "--name", "b", *options).code == 0
        out = agent.run("agent", "tree", owner, *options).out
        assert [line.split()[:2] for line in out.splitlines()] == [["s", "0"], ["└─", "b"]]


def test_a_chroot_will_do(agent: Agent, tmp_path: Path) -> None:
    """With nothing in it but the mount: no /proc, no /etc."""
    sessions = agent.mount.path / f"home/{ALICE.uid}/agent/{agent.name}/session"
    ALICE.does(sessions.parent.mkdir)
    ALICE.does((sessions / "s").mkdir)
    with chroot_with(agent.mount.path, tmp_path / "root") as root:
        alice = dataclasses.replace(ALICE, root=root)
        branched = alice.does(in_process, Path("/ctx"), "session", "branch", agent.name, "-s", "s", "--name", "b")
        shown = alice.does(in_process, Path("/ctx"), "tree", agent.name)
    assert branched == (0, f"/ctx/home/{ALICE.uid}/agent/{agent.name}/session/b\n", "")
    assert (shown[0], shown[1].splitlines()[1][:4]) == (0, "└─ b")
