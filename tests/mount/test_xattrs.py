"""Extended attributes (spec 1.9): what can be read, what is listed, and the commands that are set."""

import dataclasses
import json
import os
import uuid
from pathlib import Path

import pytest

from tests.mount.scenery import SESSION_FILES, Home, append, event, line, listing, put, said
from tests.people import ALICE, BOB, ROOT, Person, outcome

CUT = b'{"before":1,"summary":[{"role":"user","content":"short"}],"reason":"manual"}'


def attribute(path: Path, name: str) -> str:
    return os.getxattr(path, f"user.ctx.{name}").decode()


def test_a_session_says_what_it_is(home: Home) -> None:
    session = home.session("one")
    assert attribute(session, "n") == "0"
    assert attribute(session, "scope") == "private"
    assert attribute(session, "format").isdigit()
    assert str(uuid.UUID(attribute(session, "uuid"))) == attribute(session, "uuid")
    append(session / "messages.jsonl", line("user", "a") + said("b"))
    put(session / "state", "done")
    assert attribute(session, "n") == "3"


def test_n_uuid_and_scope_are_listed_on_session_directories_only(home: Home) -> None:
    session = home.session("one")
    home.session("two")
    assert sorted(os.listxattr(session)) == ["user.ctx.n", "user.ctx.scope", "user.ctx.uuid"]
    assert sorted(os.listxattr(home.archived("two"))) == ["user.ctx.n", "user.ctx.scope", "user.ctx.uuid"]
    for path in (home.path, home.agent, home.sessions, home.index, session / "context", session / "messages.jsonl"):
        assert os.listxattr(path) == [], path


def test_a_session_in_a_shared_space_has_its_scope(home: Home) -> None:
    space = home.mount.path / "shared/scoped"
    space.mkdir()
    (space / "agent/a").mkdir()
    (space / "agent/a/session/s").mkdir()
    assert attribute(space / "agent/a/session/s", "scope") == "shared"
    assert '"scope":"shared"' in (space / "agent/a/session/s/meta.json").read_text()


def test_a_branch_names_its_parent_and_where(home: Home) -> None:
    session = home.session("one")
    append(session / "messages.jsonl", line("user", "a") + said("b"))
    os.setxattr(session, "user.ctx.branch", b"two 1")
    assert attribute(home.sessions / "two", "parent") == attribute(session, "uuid")
    assert attribute(home.sessions / "two", "at") == "1"
    assert attribute(home.sessions / "two", "n") == "1"
    for name in ("parent", "at"):
        assert outcome(attribute, session, name) == "ENODATA"


def test_every_session_file_says_its_kind_and_tokens(home: Home) -> None:
    session = home.session("one")
    append(session / "messages.jsonl", said("hello"))
    put(session / "AGENTS.md", "kind")
    for name in (*SESSION_FILES, "AGENTS.md"):
        size = (session / name).stat().st_size
        assert attribute(session / name, "token_estimate") == str(-(-size // 4)), name
        assert attribute(session / name, "kind"), name


@pytest.mark.parametrize("name", ["user.ctx.nothing", "user.ctx.", "user.other", "user.ctx.n.x"])
def test_unknown_names_have_no_data(home: Home, name: str) -> None:
    session = home.session("one")
    assert outcome(os.getxattr, session, name) == "ENODATA"
    assert outcome(os.setxattr, session, name, b"x") == "EPERM"


def test_names_outside_user_are_not_supported(home: Home) -> None:
    session = home.session("one")
    for name in ("system.posix_acl_access", "security.selinux", "trusted.x"):
        assert outcome(os.getxattr, session, name) in ("ENOTSUP", "ENODATA"), name
        assert outcome(os.setxattr, session, name, b"x") in ("ENOTSUP", "EINVAL"), name
    assert outcome(os.getxattr, session, "security.selinux") == "ENOTSUP"


@pytest.mark.parametrize("name", ["n", "uuid", "scope", "parent", "at", "format", "kind", "token_estimate"])
def test_facts_are_read_only(home: Home, name: str) -> None:
    session = home.session("one")
    for path in (session, session / "state"):
        assert outcome(os.setxattr, path, f"user.ctx.{name}", b"1") == "EPERM"
        assert outcome(os.removexattr, path, f"user.ctx.{name}") == "EPERM"


@pytest.mark.parametrize("name", ["delete", "branch", "compact"])
def test_commands_are_for_session_directories(home: Home, name: str) -> None:
    session = home.session("one")
    for path in (session / "state", session / "context", home.sessions, home.agent, home.path, home.mount.path):
        assert outcome(os.setxattr, path, f"user.ctx.{name}", b"one") == "EPERM", path
    assert outcome(os.getxattr, session, f"user.ctx.{name}") == "ENODATA"


def test_branch_by_default_takes_all(home: Home) -> None:
    session = home.session("one")
    append(session / "messages.jsonl", line("user", "a") + said("b"))
    put(session / "cwd", "/srv")
    ALICE.does(os.setxattr, session, "user.ctx.branch", b"two")
    two = home.sessions / "two"
    assert (two / "messages.jsonl").read_bytes() == (session / "messages.jsonl").read_bytes()
    assert (two / "events.jsonl").read_bytes() == (session / "events.jsonl").read_bytes()
    assert (two / "latest.md").read_bytes() == b"b\n"
    assert (two / "cwd").read_bytes() == b"/srv\n"
    ALICE.does(append, two / "messages.jsonl", said("c"))
    assert (session / "latest.md").read_bytes() == b"b\n"
    assert (two / "latest.md").read_bytes() == b"c\n"


@pytest.mark.parametrize(("at", "latest"), [(0, b""), (1, b""), (2, b"b\n"), (3, b"b\n"), (4, b"d\n")])
def test_branch_at_a_point_is_the_session_as_it_was(home: Home, at: int, latest: bytes) -> None:
    session = home.session("one")
    lines = [line("user", "a"), said("b"), line("user", "c"), said("d")]
    append(session / "messages.jsonl", b"".join(lines))
    os.setxattr(session, "user.ctx.branch", f"two {at}".encode())
    assert (home.sessions / "two/messages.jsonl").read_bytes() == b"".join(lines[:at])
    assert (home.sessions / "two/latest.md").read_bytes() == latest


def test_branch_refuses(home: Home) -> None:
    session = home.session("one")
    append(session / "messages.jsonl", said("b"))
    for value, answer in (
        (b"one", "EEXIST"),
        (b"two 2", "ERANGE"),
        (b"two x", "EINVAL"),
        (b"a/b", "EINVAL"),
        (b"two " + b"9" * 5000, "ERANGE"),
    ):
        assert ALICE.outcome(os.setxattr, session, "user.ctx.branch", value) == answer, value
    assert listing(home.sessions) == {"index", "one"}


@pytest.mark.parametrize("value", [CUT, json.dumps(json.loads(CUT), indent=2).encode() + b"\n"])
def test_compact_appends_a_cut(home: Home, value: bytes) -> None:
    session = home.session("one")
    append(session / "messages.jsonl", said("b"))
    ALICE.does(os.setxattr, session, "user.ctx.compact", value)
    line = json.dumps(json.loads(CUT) | {"type": "cut"}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert (session / "events.jsonl").read_text() == line + "\n"
    assert attribute(session, "n") == "2"


BAD_CUTS = [
    b"",
    b"x",
    b"[]",
    b"{}",
    b'{"before":9,"summary":[],"reason":"r"}',
    b'{"before":true,"summary":[],"reason":"r"}',
]


@pytest.mark.parametrize(
    "value", [*BAD_CUTS, b"\xff", b'{"before":0,"summary":[],"reason":"r"', CUT + CUT, CUT + b"\n{}"]
)
def test_compact_refuses_what_is_no_cut(home: Home, value: bytes) -> None:
    session = home.session("one")
    append(session / "messages.jsonl", said("b"))
    assert ALICE.outcome(os.setxattr, session, "user.ctx.compact", value) == "EINVAL"
    assert (session / "events.jsonl").read_bytes() == b""


def test_compact_cannot_be_another_event(home: Home) -> None:
    session = home.session("one")
    state = b'{"type":"state","from":"idle","state":"done","before":0,"summary":[],"reason":"r"}'
    assert ALICE.outcome(os.setxattr, session, "user.ctx.compact", state) == "EINVAL"
    assert (session / "state").read_bytes() == b"idle\n"


def test_delete_takes_everything(home: Home) -> None:
    home.session("first")
    session = home.session("one")
    append(session / "messages.jsonl", said("b"))
    ALICE.does(os.setxattr, session, "user.ctx.delete", b"one")
    assert outcome(session.stat) == "ENOENT"
    assert listing(home.sessions) == {"index", "first"}
    assert (home.index / "list").read_bytes() == b"first\n"


def test_children_of_a_deleted_session_stay_whole(home: Home) -> None:
    home.session("first")
    session = home.session("one")
    append(session / "messages.jsonl", said("b"))
    os.setxattr(session, "user.ctx.branch", b"child")
    os.setxattr(session, "user.ctx.delete", b"one")
    assert (home.sessions / "child/messages.jsonl").read_bytes() == said("b")
    assert (home.sessions / "child/latest.md").read_bytes() == b"b\n"


@pytest.mark.parametrize(
    ("person", "answer"),
    [(ALICE, "ok"), (ROOT, "ok"), (BOB, "EACCES"), (dataclasses.replace(ALICE, maps_to_root=True), "ok")],
    ids=str,
)
@pytest.mark.parametrize(("name", "value"), [("delete", b"one"), ("branch", b"two"), ("compact", CUT)])
def test_commands_are_for_the_owner_and_root(home: Home, person: Person, answer: str, name: str, value: bytes) -> None:
    home.session("first")
    session = home.session("one")
    append(session / "messages.jsonl", said("b"))
    assert person.outcome(os.setxattr, session, f"user.ctx.{name}", value) == answer


@pytest.mark.parametrize(("name", "value"), [("delete", b"one"), ("branch", b"two"), ("compact", CUT)])
def test_an_archived_session_takes_no_commands(home: Home, name: str, value: bytes) -> None:
    home.session("first")
    home.session("one")
    archived = home.archived("one")
    assert ROOT.outcome(os.setxattr, archived, f"user.ctx.{name}", value) == "EROFS"
    assert ALICE.outcome(os.setxattr, archived, f"user.ctx.{name}", value) in ("EROFS", "EACCES")


def test_a_command_has_at_most_64_kib(home: Home) -> None:
    session = home.session("one")
    append(session / "messages.jsonl", said("b"))
    padding = 65536 - len(b'{"before":0,"summary":[],"reason":""}')
    exact = b'{"before":0,"summary":[],"reason":"' + b"x" * padding + b'"}'
    assert len(exact) == 65536
    assert ALICE.outcome(os.setxattr, session, "user.ctx.compact", exact) == "ok"
    assert ALICE.outcome(os.setxattr, session, "user.ctx.compact", exact + b" ") == "E2BIG"
    append(session / "events.jsonl", event("cut", before=0, summary=[], reason="x" * 100_000))
