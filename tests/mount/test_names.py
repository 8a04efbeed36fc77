"""Names (spec 1.1; field reports 22, 27): whatever a name is made of, it is refused or distinct, and leads nowhere."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.mount.scenery import Home, append, listing, put, said
from tests.people import ALICE, outcome

LONG = "a" * 64
BAD_EVERYWHERE: list[bytes] = [
    b" ",
    b"a b",
    b"a\nb",
    b"\n",
    b"\x01",
    b"\x7f",
    b"-a",
    b"_a",
    b"+a",
    b"~a",
    b".a",
    b"...",
    b"a:b",
    b"a\\b",
    b"a*",
    b"a%2fb",
    b"$(id)",
    b"x.sock",
    b".sock",
    b".d",
    b"a" * 65,
    b"a" * 255,
    b"a" * 300,
    b"\xff",
    b"a\xff",
    b"\xc3",
    "é".encode(),
    "e\u0301".encode(),
    "ａ".encode(),
    "²".encode(),
    "\u202ea".encode(),
    "😀".encode(),
]
GOOD = ["a", "0", "A.b_c+d-e", "a..b", "1-", "a.", "a.d.e", "sock", "d", "a.sockx", LONG, "con", "index2", "list"]

# Each directory that takes names: how a name is spelt there, and names that are bad (or good) only there.
Directory = tuple[Callable[[Home], Path], bytes, list[bytes]]
MKDIR: dict[str, Directory] = {
    "sessions": (lambda home: home.sessions, b"", [b"x.d"]),
    "agents": (lambda home: home.path / "agent", b"", [b"x.d", b"ctx", b"model"]),
    "models": (lambda home: home.path / "model", b".d", [b"x.sock.d", b"x.d.d"]),
    "providers": (lambda home: home.path / "model", b"", [b"x.sock"]),
    "models of a provider": (lambda home: home.path / "model/acme", b".d", [b"bare", b"x.d.d"]),
    "archive directories": (lambda home: home.archive, b"", [b"x.d.d"]),
    "nested archive directories": (lambda home: home.archive / "nest", b"", [b"x.d.d"]),
    "shared spaces": (lambda home: home.mount.path / "shared", b"", [b"x.d"]),
    "agents of a shared space": (lambda home: home.mount.path / "shared/space/agent", b"", [b"x.d", b"ctx"]),
    "definitions of agents": (lambda home: home.mount.path / "agent", b".d", [b"bare", b"ctx.d", b"model.d"]),
    "definitions of models": (lambda home: home.mount.path / "model/acme", b".d", [b"bare"]),
    "providers of definitions": (lambda home: home.mount.path / "model", b"", [b"x.d"]),
}


@pytest.fixture
def places(home: Home) -> Home:
    for path in (home.path / "model/acme", home.archive / "nest"):
        ALICE.does(path.mkdir, exist_ok=True)
    for path in (home.mount.path / "shared/space", home.mount.path / "model/acme"):
        path.mkdir(exist_ok=True)
    return home


def below(directory: Path, name: bytes) -> bytes:
    return os.fsencode(directory) + b"/" + name


def bad_names(suffix: bytes, special: list[bytes]) -> list[bytes]:
    return [*(name + suffix for name in BAD_EVERYWHERE if name + suffix != b".d.d"), *special]


@pytest.mark.parametrize("what", MKDIR)
def test_a_name_that_is_none_is_einval_to_make_and_enoent_to_find(places: Home, what: str) -> None:
    place, suffix, special = MKDIR[what]
    directory = place(places)
    before = listing(directory)
    for name in bad_names(suffix, special):
        path = below(directory, name)
        assert outcome(os.mkdir, path) == "EINVAL", name
        assert outcome(os.lstat, path) == "ENOENT", name
        assert outcome(os.rmdir, path) == "ENOENT", name
        assert outcome(os.unlink, path) == "ENOENT", name
    assert listing(directory) == before


@pytest.mark.parametrize("what", MKDIR)
def test_a_name_of_the_grammar_can_be_made_found_and_is_distinct(places: Home, what: str) -> None:
    place, suffix, _ = MKDIR[what]
    directory = place(places)
    before = listing(directory)
    names = {name + suffix.decode() for name in GOOD}
    for name in names:
        (directory / name).mkdir()
    assert listing(directory) == before | names
    assert len({(directory / name).stat().st_ino for name in names}) == len(names)
    for name in names:
        assert outcome((directory / name).mkdir) == "EEXIST", name


def test_the_index_is_no_session(home: Home) -> None:
    assert outcome((home.sessions / "index").mkdir) == "EEXIST"
    home.session("one")
    ALICE.does(put, home.index / "current", "one")
    assert outcome(put, home.index / "current", "index") == "EINVAL"
    ALICE.does((home.archive / home.agent.name).mkdir)
    assert outcome((home.archive / home.agent.name / "index").lstat) == "ENOENT"


@pytest.mark.parametrize("kind", ["by-hash", "by-uuid"])
def test_keys_are_names_too(home: Home, kind: str) -> None:
    home.session("one")
    directory = home.index / kind
    for name in BAD_EVERYWHERE:
        path = below(directory, name)
        assert outcome(os.lstat, path) == "ENOENT", name
        if kind == "by-hash" and not name.startswith(b"."):
            assert outcome(os.open, path, os.O_CREAT | os.O_WRONLY) == "EINVAL", name
        assert outcome(os.mkdir, path) in ("EPERM", "EINVAL"), name
    assert listing(directory) == set()
    assert outcome(os.lstat, directory / "unknown") == "ENOENT"


UUIDS = ["0F1E2D3C-4B5A-4697-8877-665544332211", "0f1e2d3c4b5a46978877665544332211", "{0f1e2d3c-4b5a-4697-8877}"]


@pytest.mark.parametrize("name", UUIDS)
def test_only_the_canonical_uuid_is_a_key(home: Home, name: str) -> None:
    home.session("one")
    (home.index / "by-uuid" / name).write_text("one\n")
    assert listing(home.index / "by-uuid") == set()
    assert ALICE.outcome((home.index / "by-uuid" / name).read_bytes) == "ENOENT"


SESSION_TARGETS = [b"x.sock", b"x.d", b"index", b"a b", b"\xff", "é".encode(), b"a" * 65, b"other"]


@pytest.mark.parametrize("name", ["root", "data", "cache", "log", "session"])
def test_what_an_agent_has_is_not_renamed(home: Home, name: str) -> None:
    assert ALICE.outcome((home.agent / name).rename, home.agent / "other") == "EPERM"
    assert ALICE.outcome((home.agent / "missing").rename, home.agent / "other") == "ENOENT"
    assert name in listing(home.agent)


def test_a_session_is_renamed_to_no_other_name(home: Home) -> None:
    session = home.session("one")
    home.session("two")
    home.archived("two")
    for name in SESSION_TARGETS:
        for directory in (home.sessions, home.archive / home.agent.name, home.archive, home.path, home.agent / "data"):
            answer = outcome(os.rename, os.fsencode(session), below(directory, name))
            assert answer in ("EPERM", "EINVAL", "ENOTEMPTY", "EEXIST"), (directory, name, answer)
    assert listing(home.sessions) == {"index", "one"}
    assert listing(home.archive / home.agent.name) == {"two"}
    assert listing(home.agent / "data") == set()


def test_similar_names_are_distinct_temporaries(home: Home) -> None:
    """Field report 22: names that a sanitiser would fold together never share a file."""
    session = home.session("one")
    names = ["a_b", "a b", "a-b", "A_b", "é", "e\u0301", "a\nb", "a\\b", "a%20b"]
    for number, name in enumerate(names):
        (session / name).write_text(f"{number}")
    assert [(session / name).read_text() for name in names] == [str(number) for number in range(len(names))]
    assert not listing(session) & set(names)


def test_dots_and_slashes_lead_where_the_kernel_says(home: Home) -> None:
    session = home.session("one")
    assert os.path.samefile(session / "..", home.sessions)
    assert os.path.samefile(home.mount.path / "home/../home", home.mount.path / "home")
    assert outcome(os.mkdir, f"{home.sessions}/a/b") == "ENOENT"
    assert outcome(os.mkdir, f"{home.sessions}/..") == "EEXIST"
    assert outcome(os.rmdir, f"{home.sessions}/.") == "EINVAL"
    assert outcome(os.mkdir, f"{home.sessions}/one/../../../evil") == "ok"
    assert "evil" in listing(home.path / "agent")
    assert "evil" not in listing(home.path)


def test_values_that_are_names_are_checked_too(home: Home) -> None:
    home.session("one")
    for name in ("../one", "/one", "a/b", "one\x00", "é", "index", "x.d", "x.sock", "a" * 65, "", "one two"):
        for target in ("current", "by-hash/h"):
            assert outcome(put, home.index / target, name) in ("EINVAL", "EFBIG"), (target, name)
    assert (home.index / "current").read_bytes() == b"one\n"
    assert listing(home.index / "by-hash") == set()


def test_deleting_by_another_name_deletes_nothing(home: Home) -> None:
    session = home.session("one")
    home.session("two")
    ALICE.does(put, home.index / "current", "two")
    for value in (b"two", b"../one", b"one/", b"/one", b"", b"one\n", b"one\x00", b"*", b"\xff"):
        assert outcome(os.setxattr, session, "user.ctx.delete", value) == "EINVAL", value
    for value in (b"../x", b"a/b", b"index", b"x.d", b"a b c", b"", b"\xff", b"x -1", b"x 1.0", b" x", "x ²".encode()):
        assert outcome(os.setxattr, session, "user.ctx.branch", value) == "EINVAL", value
    assert listing(home.sessions) == {"index", "one", "two"}


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(name=st.binary(min_size=1, max_size=300).filter(lambda name: b"/" not in name and b"\0" not in name))
def test_any_bytes_are_a_session_or_nothing(home: Home, name: bytes) -> None:
    if name in (b".", b".."):
        return
    answer = outcome(os.mkdir, below(home.sessions, name))
    known = listing(home.sessions)
    if answer == "ok":
        assert name.decode("ascii") in known
        append(home.sessions / name.decode("ascii") / "messages.jsonl", said("hi"))
    else:
        assert answer in ("EINVAL", "EEXIST")
        assert os.fsdecode(name) not in known or answer == "EEXIST"
