"""``ctx agent session archive`` and ``gc`` on a real mount (spec 4.4; field reports 18, 23, 27)."""

import contextlib
import dataclasses
import errno
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mountctl.ctx_session_archive  # noqa: F401  (for the chroot, which cannot import it)
from backend.names import cwd_key
from mountctl import archiving, ctx_session_gc
from mountctl.ctx_session_gc import matches
from tests.commands.conftest import Agent
from tests.commands.running import Ran, in_process
from tests.mount.acting import write_once
from tests.people import ALICE, BOB, Person, chroot_with

UUID = "0f1e2d3c-4b5a-4697-8877-665544332211"


class Store:
    """An agent with the sessions of a test, and what became of them. Commands run in this process: they are many."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.live = agent.directory
        self.archived = agent.directory.parents[2] / "archived_sessions" / agent.name
        self.live.parent.mkdir()
        self.new("first")

    def new(self, *names: str) -> None:
        for name in names:
            (self.live / name).mkdir()

    def gc(self, *options: str) -> Ran:
        return in_process(self.agent.mount.path, "session", "gc", self.agent.name, *options)

    def archive(self, *words: str) -> Ran:
        return in_process(self.agent.mount.path, "session", "archive", self.agent.name, *words)

    def state(self) -> tuple[list[str], list[str]]:
        """The live sessions as the index has them, sorted, and the archived ones; both must be true."""
        listed = sorted((self.live / "index/list").read_text().split())
        assert listed == sorted(set(os.listdir(self.live)) - {"index"})
        return listed, sorted(os.listdir(self.archived)) if self.archived.exists() else []


@pytest.fixture
def store(agent: Agent) -> Store:
    return Store(agent)


# archive


def test_archive_moves_the_whole_session_byte_for_byte(store: Store) -> None:
    store.new("s")
    store.agent.say("s", "assistant", "é")
    session = store.live / "s"
    (session / "AGENTS.md").write_text("kind")
    (session / "context/facts.jsonl").write_text("{}\n")
    before = {
        str(path.relative_to(session)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in session.rglob("*")
        if path.is_file()
    }
    inode = session.stat().st_ino
    assert store.archive("s") == (0, "archived s\n", "")
    archived = store.archived / "s"
    assert before == {
        str(path.relative_to(archived)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in archived.rglob("*")
        if path.is_file()
    }
    assert archived.stat().st_ino == inode
    assert store.state() == (["first"], ["s"])


def test_archive_takes_exactly_its_references_out_of_the_index(store: Store) -> None:
    store.new("a", "b")
    for name in ("a", "b"):
        (store.live / name / "cwd").write_text("/srv\n")
    (store.live / "b/cwd").write_text("/only/b\n")
    index = store.live / "index"
    (index / "by-hash/one").write_text("a\n")
    (index / "by-hash/two").write_text("b\n")
    (index / f"by-uuid/{UUID}").write_text("b\n")
    assert store.archive("b").code == 0
    found = {str(path.relative_to(index)): path.read_text() for path in index.rglob("*") if path.is_file()}
    assert found == {
        "list": "a\nfirst\n",
        "current": "first\n",
        f"by-cwd/{cwd_key('/srv')}": "a\n",
        "by-hash/one": "a\n",
    }


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("first", "it is the current session"),
        ("default", "it is the default session"),
        ("busy", "it is active"),
    ],
)
def test_a_protected_session_is_not_archived(store: Store, name: str, reason: str) -> None:
    store.new("default", "busy")
    (store.live / "busy/state").write_text("active\n")
    assert store.archive(name) == (69, "", f"ctx: refusing to archive protected session: {name}: {reason}\n")
    assert store.state() == (["busy", "default", "first"], [])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nothing",), 1, "no session"),
        (("a/b",), 2, "invalid session name: a/b"),
        (("..",), 2, "invalid session name: .."),
        (("index",), 2, "invalid session name: index"),
        (("x" * 300,), 2, "invalid session name: xxx"),
        (("é",), 2, "invalid session name: é"),
        (("a\nb",), 2, r"invalid session name: a\x0ab"),
        (("",), 2, "invalid session name: "),
        (("s.d",), 2, "invalid session name: s.d"),
        ((), 2, "SESSION"),
        (("s", "t"), 2, "unrecognized"),
        (("s", "--archive-dir", "relative"), 2, "--archive-dir must be an absolute path"),
        (("s", "--archive-dir", "/a/../b"), 2, "--archive-dir must not contain parent path components"),
        (("s", "--archive-dir", ""), 2, "--archive-dir must be an absolute path"),
        (("s", "--archive-dir", "/tmp"), 69, "session archive is on another filesystem: /tmp"),
        (("s", "--archive-dir", "HOME/archived_sessions_2"), 69, "session archive is on another filesystem"),
        (("s", "--archive-dir", "HOME/agent/AGENT/data"), 69, "session archive is on another filesystem"),
        (("s", "--archive-dir", "CTX/home/4242/archived_sessions"), 69, "session archive is on another filesystem"),
        (("s", "--archive-dir", "HOME/agent"), 69, "session archive dir overlaps live session storage"),
        (("s", "--archive-dir", "HOME/agent/AGENT/session"), 69, "session archive dir overlaps live session storage"),
        (("s", "--archive-dir", "HOME/agent/AGENT/session/s"), 69, "session archive dir overlaps live session storage"),
        (("s", "--archive-dir", "/"), 69, "session archive dir overlaps live session storage"),
        (("s", "--archive-dir", "LINK"), 69, "session archive dir overlaps live session storage"),
        (("s", "--archive-dir", "LINK/x/y"), 69, "session archive dir overlaps live session storage"),
        (("s", "--archive-dir", "/a\nb\x1b"), 69, r"session archive is on another filesystem: /a\x0ab\x1b"),
        (("s", "--archive-dir", "HOME/archived_sessions/bad name"), 2, "invalid archive directory name: bad name"),
    ],
)
def test_what_is_refused_leaves_everything_as_it_was(
    store: Store, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    store.new("s")
    (tmp_path / "link").symlink_to(store.live)
    home = store.agent.directory.parents[2]
    names = {"HOME": home, "CTX": store.agent.mount.path, "AGENT": store.agent.name, "LINK": tmp_path / "link"}
    ran = store.archive(*(re.sub("HOME|CTX|AGENT|LINK", lambda found: str(names[found[0]]), word) for word in words))
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("ctx: ") and ran.err.count("\n") == 1 and said in ran.err
    assert store.state() == (["first", "s"], [])
    assert store.agent.name not in os.listdir(home / "archived_sessions")


def test_an_archive_is_never_overwritten(store: Store) -> None:
    for text in ("old", "new"):
        store.new("s")
        store.agent.say("s", "assistant", text)
        ran = store.archive("s")
    assert ran == (69, "", f"ctx: session archive already exists: {store.archived}/s\n")
    assert (store.archived / "s/latest.md").read_text() == "old\n"
    assert (store.live / "s/latest.md").read_text() == "new\n"
    assert store.archive("s", "--archive-dir", f"{store.archived.parent}/again").code == 0
    assert (store.archived.parent / "again" / store.agent.name / "s/latest.md").read_text() == "new\n"


def test_an_archive_directory_through_a_link_is_where_it_leads(store: Store, tmp_path: Path) -> None:
    store.new("s")
    (tmp_path / "link").symlink_to(store.archived.parent)
    assert store.archive("s", "--archive-dir", f"{tmp_path}/link/2026/july").code == 0
    assert os.listdir(store.archived.parent / "2026/july" / store.agent.name) == ["s"]


def test_a_reader_reads_on_and_a_writer_is_told(store: Store) -> None:
    store.new("s")
    line = store.agent.say("s", "user", "x")
    with (store.live / "s/messages.jsonl").open() as reader, (store.live / "s/messages.jsonl").open("ab", 0) as writer:
        assert store.archive("s").code == 0
        assert reader.read() == line
        with pytest.raises(OSError, match="Read-only"):
            writer.write(line.encode())
    assert (store.archived / "s/messages.jsonl").read_text() == line


def test_the_commands_from_a_shell(store: Store) -> None:
    store.new("a", "b")
    words = ("agent", "session", "gc", store.agent.name)
    assert store.agent.run(*words).out == "ctx: dry-run; pass --yes to archive\narchive a\narchive b\n"
    assert store.agent.run("agent", "session", "archive", store.agent.name, "a") == (0, "archived a\n", "")
    assert store.agent.run(*words, "--yes") == (0, "archived b\n", "")


def test_models_and_shared_spaces_have_archives_of_their_own(store: Store) -> None:
    ctx_path, name = store.agent.mount.path, store.agent.name
    (ctx_path / "shared" / name).mkdir()
    cases = (
        (f"model:p/{name}", (), store.archived.parent / f"model/p/{name}.d"),
        (f"model:{name}", (), store.archived.parent / f"model/{name}.d"),
        ("coder", ("--space", name), ctx_path / "shared" / name / "archived_sessions/coder"),
        (f"model:p/{name}", ("--space", name), ctx_path / "shared" / name / f"archived_sessions/model/p/{name}.d"),
    )
    for owner, options, archived in cases:
        for session in ("first", "s", "t"):
            assert store.agent.run("agent", "session", "new", owner, session, *options).code == 0
        assert store.agent.run("agent", "session", "archive", owner, "s", *options) == (0, "archived s\n", "")
        assert store.agent.run("agent", "session", "gc", owner, "--yes", *options) == (0, "archived t\n", "")
        assert sorted(os.listdir(archived)) == ["s", "t"]
        listed = store.agent.run("agent", "session", "list", owner, *options).out
        assert [line.split("\t")[0] for line in listed.splitlines()] == ["first"]


# gc


def filled(store: Store) -> None:
    store.new("default", "a-1", "a-2", "b-1", "busy")
    (store.live / "busy/state").write_text("active\n")


FREE = ["a-1", "a-2", "b-1"]


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ((), FREE),
        (("--match", "*"), FREE),
        (("--match", "a-*"), ["a-1", "a-2"]),
        (("--match", "*-1"), ["a-1", "b-1"]),
        (("--match", "a*", "--match", "b-1"), FREE),
        (("--match", "a-?"), []),
        (("--match", "[ab]-1"), []),
        (("--match", "a"), []),
        (("--match", ""), []),
        (("--match", "default"), []),
        (("--match", "busy"), []),
        (("--keep", "a-1"), ["a-2", "b-1"]),
        (("--keep", "a-1", "--keep", "b-1", "--match", "a*"), ["a-2"]),
        (("--keep", "no-such"), FREE),
        (("--older-than-days", "36500"), []),
        (("--older-than-days", "9" * 18), []),
    ],
)
@pytest.mark.parametrize(("delete", "verb"), [((), "archive"), (("--delete",), "delete")])
def test_a_preview_writes_nothing_and_is_what_then_happens(
    store: Store, options: tuple[str, ...], chosen: list[str], delete: tuple[str, ...], verb: str
) -> None:
    filled(store)
    before = store.state()
    ran = store.gc(*options, *delete)
    if chosen:
        expected = [f"ctx: dry-run; pass --yes to {verb}", *(f"{verb} {name}" for name in chosen)]
        done = [f"{verb}d {name}" for name in chosen]
    else:
        expected = done = ["ctx: no matching agent sessions"]
    assert ran == (0, "".join(f"{line}\n" for line in expected), "")
    assert store.state() == before
    assert store.gc(*options, *delete, "--yes") == (0, "".join(f"{line}\n" for line in done), "")
    live = [name for name in before[0] if name not in chosen]
    assert store.state() == (live, [] if delete else chosen)
    assert store.gc(*options, *delete, "--yes").out == "ctx: no matching agent sessions\n"


@pytest.mark.parametrize(
    ("options", "does"),
    [
        (("--yes", "--dry-run"), False),
        (("--dry-run", "--yes"), True),
        (("--yes", "--dry-run", "--yes"), True),
        (("--dry-run",), False),
    ],
)
def test_the_last_of_yes_and_dry_run_wins(store: Store, options: tuple[str, ...], does: bool) -> None:
    store.new("a")
    assert store.gc(*options).code == 0
    assert store.state() == ((["first"], ["a"]) if does else (["a", "first"], []))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--delete", "--archive-dir", "/x"), "agent session gc --archive-dir cannot be used with --delete"),
        (("--archive-dir", "x"), "--archive-dir must be an absolute path"),
        (("--archive-dir", "/x/.."), "--archive-dir must not contain parent path components"),
        (("--older-than-days", "-1"), "invalid --older-than-days value"),
        (("--older-than-days", "1.5"), "invalid --older-than-days value"),
        (("--older-than-days", "ten"), "invalid --older-than-days value"),
        (("--older-than-days", ""), "invalid --older-than-days value"),
        (("--older-than-days", "9" * 5000), "invalid --older-than-days value"),
        (("--keep", "a/b"), "invalid session name: a/b"),
        (("--keep", ""), "invalid session name: "),
        (("--mtch", "a"), "--mtch"),
        (("--delet",), "--delet"),
        (("a",), "unrecognized"),
    ],
)
@pytest.mark.parametrize("yes", [(), ("--yes",)])
def test_a_wrong_word_does_nothing(store: Store, options: tuple[str, ...], said: str, yes: tuple[str, ...]) -> None:
    """Field report 23: an unknown filter value widens a delete."""
    store.new("a")
    ran = store.gc(*yes, *options)
    assert (ran.code, ran.out) == (2, "") and said in ran.err
    assert store.state() == (["a", "first"], [])


@pytest.mark.parametrize("name", ["a/b", "..", "a b", "x" * 65, "model:", "model:a/b/c", "ctx", ""])
def test_a_wrong_agent_name_is_a_usage_error(agent: Agent, name: str) -> None:
    for words in (("gc", name), ("archive", name, "s")):
        ran = in_process(agent.mount.path, "session", *words)
        assert (ran.code, ran.out, ran.err) == (2, "", f"ctx: invalid agent name: {name}\n")


def test_age_is_by_updated_at_and_a_backdated_mtime_selects_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field report 18: 950 sessions collected by an mtime that meant nothing."""
    store.new("old", "new")
    for path in (store.live / "old", *(store.live / "old").iterdir()):
        with contextlib.suppress(PermissionError):
            os.utime(path, (1, 1))
    assert store.gc("--older-than-days", "1").out == "ctx: no matching agent sessions\n"
    monkeypatch.setenv("CTX_ROOT", str(store.agent.mount.path))
    owner = archiving.owner_of(store.agent.name, None)
    now = int((store.live / "old/updated_at").read_text())
    assert ctx_session_gc.eligible(owner, None, now, ()) == []
    assert ctx_session_gc.eligible(owner, None, now + 2, ()) == ["new", "old"]


def test_a_branch_that_is_new_is_not_as_old_as_what_it_was_made_of(store: Store, tmp_path: Path) -> None:
    old = {"role": "user", "content": "long ago", "timestamp": "2020-01-01T00:00:00Z"}
    (tmp_path / "old.jsonl").write_text(json.dumps(old) + "\n")
    store.agent.run("agent", "import", store.agent.name, "--from", "jsonl", str(tmp_path / "old.jsonl"))
    store.agent.run("agent", "session", "branch", store.agent.name, "-s", "old", "--name", "new")
    ran = store.agent.run("agent", "session", "gc", store.agent.name, "--older-than-days", "30")
    assert ran.out == "ctx: dry-run; pass --yes to archive\narchive old\n"


def test_an_archive_that_is_in_the_way_stops_before_anything_is_done(store: Store) -> None:
    store.new("b")
    assert store.gc("--yes").code == 0
    store.new("a", "b")
    said = f"ctx: session archive already exists: {store.archived}/b\n"
    assert store.gc() == (0, "ctx: dry-run; pass --yes to archive\narchive a\narchive b\n", said)
    assert store.gc("--yes") == (69, "", said)
    assert store.state() == (["a", "b", "first"], ["b"])
    assert store.gc("--yes", "--delete") == (0, "deleted a\ndeleted b\n", "")
    assert store.state() == (["first"], ["b"])


def test_a_session_that_becomes_active_meanwhile_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a send does that comes first: the mount looks once more in the rename itself."""
    store.new("a", "b", "c")
    chosen = ctx_session_gc.eligible

    def then_active(*arguments: object) -> list[str]:
        found = chosen(*arguments)  # type: ignore[arg-type]
        (store.live / "b/state").write_text("active\n")
        return found

    monkeypatch.setattr(ctx_session_gc, "eligible", then_active)
    stays = "ctx: session became active or changed meanwhile, it stays: b\n"
    assert store.gc("--yes") == (69, "archived a\narchived c\n", stays)
    assert store.state() == (["b", "first"], ["a", "c"])


def test_every_session_that_went_is_a_line_in_the_daemons_log(store: Store) -> None:
    """Field report 18: 950 sessions, silently."""
    store.new("a", "b", "c")
    store.archive("a")
    store.gc("--yes", "--match", "b")
    store.gc("--yes", "--delete")
    whose = f"of {store.agent.name} in home/0"
    lines = [line for line in store.agent.mount.log.read_text().splitlines() if whose in line]
    assert [line.partition("session ")[2] for line in lines] == [
        f"a {whose} archived by uid 0",
        f"b {whose} archived by uid 0",
        f"c {whose} deleted by uid 0",
    ]


def test_what_is_said_to_a_session_while_it_is_archived_is_lost_nowhere(store: Store) -> None:
    """Whoever says it finds the session, or that it has gone, and then says it to a fresh one."""
    said: list[str] = []

    def say(text: str) -> None:
        log = store.live / "s/messages.jsonl"
        while True:
            with contextlib.suppress(FileExistsError):
                log.parent.mkdir()
            try:
                write_once(log, f'{{"role":"user","content":"{text}"}}\n'.encode())
            except OSError as error:
                assert error.errno in (errno.ENOENT, errno.EROFS, errno.ESTALE)
                continue
            said.append(text)
            return

    def speak(speaker: int) -> None:
        for number in range(100):
            say(f"{speaker}-{number}")

    with ThreadPoolExecutor(3) as pool:
        speakers = [pool.submit(speak, speaker) for speaker in range(3)]
        rounds = 0
        while not all(speaker.done() for speaker in speakers):
            ran = store.gc("--yes", "--archive-dir", f"{store.archived.parent}/{store.agent.name}-{rounds}")
            assert ran.code == 0 or "it stays: s" in ran.err
            rounds += "archived s" in ran.out
        for speaker in speakers:
            speaker.result()
    logs = [store.live / "s/messages.jsonl", *store.archived.parent.glob(f"{store.agent.name}-*/*/s/messages.jsonl")]
    stored = [json.loads(line)["content"] for log in logs if log.exists() for line in log.read_text().splitlines()]
    assert rounds
    assert sorted(stored) == sorted(said) == sorted(f"{a}-{b}" for a in range(3) for b in range(100))


def test_what_was_archived_is_never_collected_again(store: Store) -> None:
    store.new("a")
    assert store.gc("--yes").out == "archived a\n"
    assert store.gc("--yes", "--delete", "--match", "*").out == "ctx: no matching agent sessions\n"
    assert store.state() == (["first"], ["a"])


def test_in_a_shared_space_only_ones_own_sessions_are_collected(agent: Agent) -> None:
    space = agent.mount.path / "shared" / agent.name
    space.mkdir()
    os.chown(space, 0, 3000)
    alice, bob = (dataclasses.replace(person, groups=(3000,)) for person in (ALICE, BOB))
    alice.does((space / "agent/coder").mkdir)
    for person, name in ((alice, "first"), (alice, "hers"), (bob, "his")):
        person.does((space / "agent/coder/session" / name).mkdir)
    ran = bob.does(in_process, agent.mount.path, "session", "archive", "coder", "hers", "--space", agent.name)
    assert ran == (13, "", "ctx: hers: Operation not permitted\n")
    words = ("session", "gc", "coder", "--space", agent.name, "--yes")
    assert bob.does(in_process, agent.mount.path, *words) == (0, "archived his\n", "")
    assert alice.does(in_process, agent.mount.path, *words) == (0, "archived hers\n", "")
    assert sorted(os.listdir(space / "archived_sessions/coder")) == ["hers", "his"]


def test_a_chroot_will_do(agent: Agent, tmp_path: Path) -> None:
    sessions = agent.mount.path / f"home/{ALICE.uid}/agent/{agent.name}/session"
    ALICE.does(sessions.parent.mkdir)
    for name in ("first", "a", "b"):
        ALICE.does((sessions / name).mkdir)
    with chroot_with(agent.mount.path, tmp_path / "root") as root:
        alice: Person = dataclasses.replace(ALICE, root=root)
        assert alice.does(in_process, Path("/ctx"), "session", "archive", agent.name, "a") == (0, "archived a\n", "")
        assert alice.does(in_process, Path("/ctx"), "session", "gc", agent.name, "--yes") == (0, "archived b\n", "")


TEXT = st.text("ab*-", max_size=8)


@given(TEXT, st.text("ab-", max_size=8))
def test_a_glob_knows_the_star_only(pattern: str, name: str) -> None:
    as_regular_expression = ".*".join(map(re.escape, pattern.split("*")))
    assert matches(pattern, name) == bool(re.fullmatch(as_regular_expression, name))
