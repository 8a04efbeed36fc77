"""The tree of spec 1.2: every file is there with its type, mode, owner, group, and its content's form."""

import grp
import os
import pwd
import re
import stat
from pathlib import Path

import pytest

from tests.mount.scenery import Home, append, described, event, line, listing, put, said
from tests.people import ALICE, BOB, ROOT, outcome

UUID = "0f1e2d3c-4b5a-4697-8877-665544332211"
META = re.escape('{"client":"ctx","scope":"private"}')
ALICES = (ALICE.uid, ALICE.gid)
ROOTS = (0, 0)


@pytest.fixture
def everything(fresh_home: Home) -> Home:
    """A home with every kind of file in it."""
    home = fresh_home
    one = home.session("one")
    home.session("two")

    def fill() -> None:
        append(one / "messages.jsonl", line("user", "hello") + said("hi"))
        append(one / "events.jsonl", event("delta", run="r1", text="h"))
        put(one / "cwd", "/srv")
        put(one / "AGENTS.md", "Be kind.")
        put(one / "SKILLS.md", "None.")
        put(home.index / "by-hash/abc123", "one")
        put(home.index / f"by-uuid/{UUID}", "one")
        (home.path / "model/small.d").mkdir()
        (home.path / "model/acme").mkdir()
        (home.path / "model/acme/big.d").mkdir()
        (home.path / "model/acme/big.d/session/m").mkdir()

    ALICE.does(fill)
    (home.mount.path / "agent/coder.d").mkdir()
    (home.mount.path / "model/acme").mkdir()
    (home.mount.path / "model/acme/big.d").mkdir()
    home.archived("two")
    return home


DIRECTORIES = {
    "": ("drwxr-xr-x", ROOTS, {"status", "agent", "model", "home", "shared"}),
    "agent": ("drwxr-xr-x", ROOTS, {"coder.d", "ctx.sock", "echo.sock"}),
    "agent/coder.d": (
        "drwxr-xr-x",
        ROOTS,
        {"owner", "exec", "root", "cwd", "mount", "model", "meta.json", "status"},
    ),
    "model": ("drwxr-xr-x", ROOTS, {"acme"}),
    "model/acme": ("drwxr-xr-x", ROOTS, {"big.d"}),
    "model/acme/big.d": (
        "drwxr-xr-x",
        ROOTS,
        {"owner", "exec", "root", "cwd", "mount", "model", "meta.json", "status"},
    ),
    "home": ("drwxr-xr-x", ROOTS, {"1001"}),
    "home/1001": ("drwx------", ALICES, {"agent", "model", "archived_sessions"}),
    "home/1001/agent": ("drwx------", ALICES, {"coder"}),
    "home/1001/agent/coder": ("drwx------", ALICES, {"session", "root", "data", "cache", "log"}),
    "home/1001/agent/coder/root": ("drwx------", ALICES, set()),
    "home/1001/agent/coder/data": ("drwx------", ALICES, set()),
    "home/1001/agent/coder/cache": ("drwx------", ALICES, set()),
    "home/1001/agent/coder/log": ("drwx------", ALICES, set()),
    "home/1001/agent/coder/session": ("drwx------", ALICES, {"index", "one"}),
    "home/1001/agent/coder/session/index": (
        "drwx------",
        ALICES,
        {"list", "current", "by-cwd", "by-hash", "by-uuid"},
    ),
    "home/1001/agent/coder/session/index/by-cwd": ("drwx------", ALICES, {"cwd-9bef649c5c9d7b6b"}),
    "home/1001/agent/coder/session/index/by-hash": ("drwx------", ALICES, {"abc123"}),
    "home/1001/agent/coder/session/index/by-uuid": ("drwx------", ALICES, {UUID}),
    "home/1001/model": ("drwx------", ALICES, {"small.d", "acme"}),
    "home/1001/model/small.d": ("drwx------", ALICES, {"session"}),
    "home/1001/model/acme": ("drwx------", ALICES, {"big.d"}),
    "home/1001/model/acme/big.d": ("drwx------", ALICES, {"session"}),
    "home/1001/model/acme/big.d/session": ("drwx------", ALICES, {"index", "m"}),
    "home/1001/archived_sessions": ("drwx------", ALICES, {"coder"}),
    "home/1001/archived_sessions/coder": ("drwx------", ALICES, {"two"}),
    "shared": ("drwxr-xr-x", ROOTS, set()),
}
LIVE_SESSION = {
    "messages.jsonl", "events.jsonl", "latest.md", "state", "cwd", "created_at", "updated_at", "meta.json",
    "AGENTS.md", "SKILLS.md", "context",
}  # fmt: skip

ONE = "home/1001/agent/coder/session/one"
INDEX = "home/1001/agent/coder/session/index"
ARCHIVED = "home/1001/archived_sessions/coder/two"
FILES = {
    "status": ("-r--r--r--", ROOTS, rb"([a-z_]+=[^\n]*\n)+"),
    "agent/coder.d/status": ("-r--r--r--", ROOTS, rb"idle\n"),
    **{
        f"agent/coder.d/{name}": ("-rw-r--r--", ROOTS, rb"")
        for name in ("owner", "exec", "root", "cwd", "mount", "model", "meta.json")
    },
    f"{ONE}/messages.jsonl": ("-rw-------", ALICES, rb"(\{.*\}\n){2}"),
    f"{ONE}/events.jsonl": ("-rw-------", ALICES, rb"(\{.*\}\n){2}"),
    f"{ONE}/latest.md": ("-r--------", ALICES, rb"hi\n"),
    f"{ONE}/state": ("-rw-------", ALICES, rb"idle\n"),
    f"{ONE}/cwd": ("-rw-------", ALICES, rb"/srv\n"),
    f"{ONE}/created_at": ("-r--------", ALICES, rb"\d{10}\n"),
    f"{ONE}/updated_at": ("-r--------", ALICES, rb"\d{10}\n"),
    f"{ONE}/meta.json": ("-rw-------", ALICES, META.encode() + rb"\n"),
    f"{ONE}/AGENTS.md": ("-rw-------", ALICES, rb"Be kind\.\n"),
    f"{ONE}/SKILLS.md": ("-rw-------", ALICES, rb"None\.\n"),
    f"{INDEX}/list": ("-r--------", ALICES, rb"one\n"),
    f"{INDEX}/current": ("-rw-------", ALICES, rb"one\n"),
    f"{INDEX}/by-cwd/cwd-9bef649c5c9d7b6b": ("-r--------", ALICES, rb"one\n"),
    f"{INDEX}/by-hash/abc123": ("-rw-------", ALICES, rb"one\n"),
    f"{INDEX}/by-uuid/{UUID}": ("-rw-------", ALICES, rb"one\n"),
    f"{ARCHIVED}/messages.jsonl": ("-r--------", ALICES, rb""),
    f"{ARCHIVED}/events.jsonl": ("-r--------", ALICES, rb""),
    f"{ARCHIVED}/latest.md": ("-r--------", ALICES, rb""),
    f"{ARCHIVED}/state": ("-r--------", ALICES, rb"idle\n"),
    f"{ARCHIVED}/cwd": ("-r--------", ALICES, rb"/\n"),
    f"{ARCHIVED}/created_at": ("-r--------", ALICES, rb"\d{10}\n"),
    f"{ARCHIVED}/meta.json": ("-r--------", ALICES, META.encode() + rb"\n"),
}


def test_every_file_is_there_as_the_table_of_files_says(everything: Home) -> None:
    root = everything.mount.path
    for name, (mode, owner, names) in DIRECTORIES.items():
        assert (described(root / name), listing(root / name)) == ((mode, owner), names), name
    for name, (mode, owner, content) in FILES.items():
        assert described(root / name) == (mode, owner), name
        assert re.fullmatch(content, (root / name).read_bytes()), name


def test_a_session_and_its_archive_have_the_same_files(everything: Home) -> None:
    root = everything.mount.path
    assert listing(root / ONE) == LIVE_SESSION
    assert described(root / ONE) == ("drwx------", ALICES)
    assert listing(root / ARCHIVED) == LIVE_SESSION - {"AGENTS.md", "SKILLS.md"}
    assert described(root / ARCHIVED) == ("dr-x------", ALICES)
    assert described(root / ARCHIVED / "context") == ("dr-x------", ALICES)


def test_what_is_listed_can_be_found_and_is_the_same(everything: Home) -> None:
    """A directory's listing (readdirplus) and a look-up of each name agree on number and type."""
    for directory, _, _ in os.walk(everything.mount.path):
        for listed in os.scandir(directory):
            found = os.lstat(listed.path)
            kinds = (listed.is_dir(follow_symlinks=False), listed.is_file(follow_symlinks=False))
            assert listed.inode() == found.st_ino, listed.path
            assert kinds == (stat.S_ISDIR(found.st_mode), stat.S_ISREG(found.st_mode)), listed.path


def test_inode_numbers_are_distinct(everything: Home) -> None:
    seen: dict[int, str] = {}
    for directory, names, files in os.walk(everything.mount.path):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            number = os.lstat(path).st_ino
            assert seen.setdefault(number, path) == path
    assert len(seen) > 80


def test_current_is_absent_while_there_is_no_session(home: Home) -> None:
    assert listing(home.index) == {"list", "by-cwd", "by-hash", "by-uuid"}
    assert outcome((home.index / "current").read_bytes) == "ENOENT"
    home.session("first")
    assert (home.index / "current").read_bytes() == b"first\n"


def test_a_home_is_its_users_primary_group(ctx: Path) -> None:
    known = next(user for user in pwd.getpwall() if user.pw_gid != user.pw_uid and user.pw_uid < 1000)
    assert grp.getgrgid(known.pw_gid)
    assert described(ctx / f"home/{known.pw_uid}") == ("drwx------", (known.pw_uid, known.pw_gid))


def test_the_admin_makes_definitions_and_all_may_read_them(ctx: Path) -> None:
    directory = ctx / "agent/reader.d"
    assert ALICE.outcome(directory.mkdir) == "EACCES"
    ROOT.does(directory.mkdir)
    ROOT.does(put, directory / "cwd", "/srv")
    assert BOB.does((directory / "cwd").read_bytes) == b"/srv\n"
    assert ALICE.outcome(put, directory / "cwd", "/tmp") == "EACCES"
    assert ROOT.outcome(put, directory / "status", "busy") == "EACCES"


def test_definitions_of_models_come_and_go_with_their_provider(ctx: Path) -> None:
    provider = ctx / "model/acme"
    provider.mkdir()
    assert listing(ctx / "model") == {"acme"}
    (provider / "big.d").mkdir()
    assert listing(provider) == {"big.d"}
    assert outcome(provider.rmdir) == "ENOTEMPTY"
    (provider / "big.d").rmdir()
    provider.rmdir()
    assert listing(ctx / "model") == set()
    assert outcome(provider.stat) == "ENOENT"


@pytest.mark.parametrize("name", ["history", "memory", "context", "swap", "task", "x"])
def test_nothing_is_added_at_the_root(ctx: Path, name: str) -> None:
    assert outcome((ctx / name).mkdir) == "EPERM"
    assert outcome((ctx / name).write_bytes, b"x") == "EPERM"
    assert listing(ctx) == {"status", "agent", "model", "home", "shared"}


def test_emptying_or_removing_root_leaves_sessions_alone(home: Home) -> None:
    session = home.session("one")
    append(session / "messages.jsonl", said("hi"))
    before = {file.name: file.read_bytes() for file in session.iterdir() if file.is_file()}

    def empty_and_remove() -> None:
        (home.agent / "root/x").write_bytes(b"x")
        (home.agent / "root/x").unlink()
        (home.agent / "root").rmdir()

    ALICE.does(empty_and_remove)
    assert listing(home.agent) == {"session", "data", "cache", "log"}
    ALICE.does((home.agent / "root").mkdir, 0o700)
    assert listing(home.agent) == {"session", "root", "data", "cache", "log"}
    (home.mount.path / "agent/rooted.d").mkdir()
    put(home.mount.path / "agent/rooted.d/root", "/srv")
    assert {file.name: file.read_bytes() for file in session.iterdir() if file.is_file()} == before
