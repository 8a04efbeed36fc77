"""``ctx agent session gc`` on a real mount (spec 4.4; field reports 18, 23, 27)."""

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
from mountctl import archiving, ctx_session_gc
from mountctl.ctx_session_gc import matches
from tests.commands.conftest import Agent, Store
from tests.commands.running import in_process
from tests.mount.acting import write_once
from tests.people import ALICE, BOB, Person, chroot_with


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
