"""``ctx agent session archive`` on a real mount (spec 4.4; field reports 18, 23, 27)."""

import os
import re
from pathlib import Path

import pytest

from backend.names import cwd_key
from tests.commands.conftest import Store

UUID = "0f1e2d3c-4b5a-4697-8877-665544332211"


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
