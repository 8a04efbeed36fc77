"""Shared spaces (spec 1.8): the admin makes them, the group works in them, a session is its creator's."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mount.scenery import append, described, event, listing, put, said
from tests.mounting import RunningMount
from tests.people import ROOT, Person, outcome

TEAM = 3000
ANN = Person(1001, 1001, (TEAM,))
BEN = Person(1002, 1002, (TEAM,))
STRANGER = Person(1003, 1003)

_numbers = itertools.count(1)


@pytest.fixture
def space(ctx: Path) -> Path:
    """A shared space that was given to the team."""
    path = ctx / f"shared/team{next(_numbers)}"
    path.mkdir()
    os.chown(path, 0, TEAM)
    return path


@pytest.fixture
def session(space: Path) -> Path:
    """A session that Ann made in an agent that Ben made."""
    BEN.does((space / "agent/helper").mkdir)
    path = space / "agent/helper/session/one"
    ANN.does(path.mkdir)
    return path


def test_a_new_space_is_roots_and_2770(ctx: Path) -> None:
    (ctx / "shared/new").mkdir()
    assert described(ctx / "shared/new") == ("drwxrws---", (0, 0))
    assert listing(ctx / "shared/new") == {"agent", "model", "archived_sessions", "data"}


def test_the_admin_decides_on_group_and_mode(space: Path) -> None:
    assert described(space) == ("drwxrws---", (0, TEAM))
    space.chmod(0o2750)
    assert described(space) == ("drwxr-s---", (0, TEAM))
    os.chown(space, ANN.uid, TEAM)
    assert described(space) == ("drwxr-s---", (ANN.uid, TEAM))


def test_only_the_admin_makes_changes_and_removes_spaces(space: Path) -> None:
    assert ANN.outcome((space.parent / "mine").mkdir) == "EACCES"
    assert ANN.outcome(space.rmdir) == "EACCES"
    assert ANN.outcome(space.chmod, 0o777) == "EPERM"
    assert ANN.outcome(os.chown, space, ANN.uid, ANN.gid) == "EPERM"


def test_an_empty_space_can_be_removed_and_made_again(space: Path) -> None:
    ANN.does((space / "data/x").write_bytes, b"x")
    assert outcome(space.rmdir) == "ENOTEMPTY"
    (space / "data/x").unlink()
    ANN.does((space / "agent/a").mkdir)
    assert outcome(space.rmdir) == "ENOTEMPTY"
    ANN.does((space / "agent/a").rmdir)
    space.rmdir()
    assert outcome(space.stat) == "ENOENT"
    assert space.name not in listing(space.parent)
    space.mkdir()
    assert described(space) == ("drwxrws---", (0, 0))


def test_what_members_make_is_theirs_and_the_spaces_group(session: Path) -> None:
    agent = session.parent.parent
    assert described(agent) == ("drwxrws---", (BEN.uid, TEAM))
    assert listing(agent) == {"session"}
    assert described(session) == ("drwxrws---", (ANN.uid, TEAM))
    assert described(session / "context") == ("drwxrws---", (ANN.uid, TEAM))
    for name in ("messages.jsonl", "events.jsonl", "state", "cwd", "meta.json"):
        assert described(session / name) == ("-rw-rw----", (ANN.uid, TEAM)), name
    for name in ("latest.md", "created_at", "updated_at"):
        assert described(session / name) == ("-r--r-----", (ANN.uid, TEAM)), name
    assert described(session.parent / "index/list") == ("-r--r-----", (BEN.uid, TEAM))
    assert described(session.parent / "index/current") == ("-rw-rw----", (BEN.uid, TEAM))


def test_members_read_and_append(session: Path) -> None:
    BEN.does(append, session / "messages.jsonl", said("from ben"))
    BEN.does(put, session / "state", "done")
    assert ANN.does((session / "latest.md").read_bytes) == b"from ben\n"
    assert ANN.does((session / "state").read_bytes) == b"done\n"
    assert described(session / "messages.jsonl") == ("-rw-rw----", (ANN.uid, TEAM))


def test_strangers_are_kept_out(session: Path, space: Path) -> None:
    ANN.does((space / "data/x").write_bytes, b"x")
    for person in (ANN, ROOT):
        person.does((session / "messages.jsonl").read_bytes)
        person.does(listing, session)
    assert STRANGER.outcome(os.listdir, space) == "EACCES"
    assert STRANGER.outcome(os.chdir, space) == "EACCES"
    assert STRANGER.outcome((session / "messages.jsonl").read_bytes) == "EACCES"
    assert STRANGER.outcome(append, session / "messages.jsonl", said("x")) == "EACCES"
    assert STRANGER.outcome((space / "agent/mine").mkdir) == "EACCES"
    assert STRANGER.outcome((space / "data/x").read_bytes) == "EACCES"


def test_derived_files_are_written_by_no_member(session: Path) -> None:
    assert ANN.outcome(put, session / "latest.md", "x") == "EACCES"
    assert ROOT.outcome(put, session / "latest.md", "x") == "EACCES"


def test_only_creator_and_root_archive_delete_or_compact(session: Path, space: Path) -> None:
    BEN.does((session.parent / "two").mkdir)
    BEN.does(put, session.parent / "index/current", "two")
    archive = space / "archived_sessions/helper"
    BEN.does(archive.mkdir)
    cut = b'{"before":0,"summary":[],"reason":"r"}'
    for name, value in (("delete", b"one"), ("compact", cut), ("branch", b"three")):
        assert BEN.outcome(os.setxattr, session, f"user.ctx.{name}", value) == "EPERM", name
    assert BEN.outcome(session.rename, archive / "one") == "EPERM"
    assert ANN.outcome(os.setxattr, session, "user.ctx.compact", cut) == "ok"
    ANN.does(session.rename, archive / "one")
    assert described(archive / "one") == ("dr-xr-s---", (ANN.uid, TEAM))
    assert described(archive / "one/messages.jsonl") == ("-r--r-----", (ANN.uid, TEAM))
    assert described(archive) == ("drwxrws---", (BEN.uid, TEAM))
    assert BEN.does((archive / "one/state").read_bytes) == b"idle\n"


def test_a_cut_in_the_log_is_a_compaction_however_it_is_written(session: Path) -> None:
    events = session / "events.jsonl"
    cut = event("cut", before=0, summary=[], reason="r")
    delta = event("delta", run="r", text="x")

    def by_a_temporary() -> None:
        (session / "tmp").write_bytes(events.read_bytes() + delta + cut)
        (session / "tmp").rename(events)

    def in_place() -> None:
        content = events.read_bytes() + cut
        with events.open("r+b", buffering=0) as file:
            file.truncate(0)
            file.write(content)
            os.fsync(file.fileno())

    ways: list[Callable[[], object]] = [lambda: append(events, delta + cut), by_a_temporary, in_place]
    for way in ways:
        assert BEN.outcome(way) == "EPERM"
        assert events.read_bytes() == b""
    for way in ways:
        assert ANN.outcome(way) == "ok"
    assert events.read_bytes() == (delta + cut) * 2 + cut


def test_root_deletes_anybodys_session(session: Path) -> None:
    ANN.does((session.parent / "two").mkdir)
    ROOT.does(os.setxattr, session.parent / "two", "user.ctx.delete", b"two")
    assert listing(session.parent) == {"index", "one"}


def test_the_shared_data_directory_hands_its_group_down(space: Path) -> None:
    assert described(space / "data") == ("drwxrws---", (0, TEAM))
    ANN.does((space / "data/ann").mkdir, 0o750)
    ANN.does((space / "data/file").write_bytes, b"x")
    assert described(space / "data/ann") == ("drwxr-s---", (ANN.uid, TEAM))
    assert (space / "data/file").stat().st_gid == TEAM


def test_a_space_without_its_data_directory_is_given_away_like_others(session: Path, space: Path) -> None:
    ROOT.does((space / "data").rmdir)
    assert described(session / "state") == ("-rw-rw----", (ANN.uid, TEAM))
    os.chown(space, 0, 3001)
    assert described(session / "state") == ("-rw-rw----", (ANN.uid, 3001))
    (space / "data").mkdir(0o750)
    assert described(space / "data") == ("drwxr-s---", (0, 3001))


def test_a_space_that_is_given_to_another_group_changes_hands_at_once(session: Path, space: Path) -> None:
    """Also where the kernel had every attribute cached."""
    other = Person(1004, 1004, (3001,))
    for path in (space, session, session / "state"):
        assert BEN.outcome(os.stat, path) == "ok"
    os.chown(space, 0, 3001)
    assert BEN.outcome(os.listdir, space) == "EACCES"
    assert described(session) == ("drwxrws---", (ANN.uid, 3001))
    assert described(session / "state") == ("-rw-rw----", (ANN.uid, 3001))
    assert described(space / "data") == ("drwxrws---", (0, 3001))
    assert other.does((session / "state").read_bytes) == b"idle\n"
    other.does(append, session / "messages.jsonl", said("x"))


def test_models_and_archives_of_a_space(space: Path) -> None:
    ANN.does((space / "model/small.d").mkdir)
    ANN.does((space / "model/acme").mkdir)
    ANN.does((space / "model/acme/big.d").mkdir)
    BEN.does((space / "model/acme/big.d/session/s").mkdir)
    assert listing(space / "model") == {"small.d", "acme"}
    assert described(space / "model/acme/big.d/session/s") == ("drwxrws---", (BEN.uid, TEAM))
    assert BEN.outcome((space / "model/small.d").rmdir) == "ok"


def test_a_space_keeps_its_group_and_creators_across_restarts(mount: RunningMount) -> None:
    space = mount.path / "shared/team"
    space.mkdir()
    os.chown(space, 0, TEAM)
    space.chmod(0o2750)
    (space / "agent/helper").mkdir()
    os.chmod(space, 0o2770)
    ANN.does((space / "agent/helper/session/one").mkdir)
    mount.restart()
    assert described(space) == ("drwxrws---", (0, TEAM))
    assert described(space / "agent/helper/session/one") == ("drwxrws---", (ANN.uid, TEAM))
    assert described(space / "data") == ("drwxrws---", (0, TEAM))
