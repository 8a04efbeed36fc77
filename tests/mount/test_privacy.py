"""Who may do what in homes (spec 1.8): real uids, chroots, user namespaces, descriptors handed on."""

import dataclasses
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mount.scenery import SESSION_FILES, Home, append, put, said
from tests.mounting import RunningMount
from tests.people import ALICE, BOB, ROOT, Person, chroot_with, outcome

HOMES_OF_NOBODY = (0, 5, 65534, 4294967294)


def look_at_everything(directory: Path) -> int:
    """Walks, stats and reads all of it, so that the kernel has everything cached."""
    seen = 0
    for below, names, files in os.walk(directory):
        for name in (*names, *files):
            os.lstat(os.path.join(below, name))
            seen += 1
        for name in files:
            Path(below, name).read_bytes()
    return seen


@pytest.fixture(scope="module")
def private(module_mount: RunningMount) -> Home:
    """A home with content that its owner and root have looked at."""
    home = Home(module_mount, "private")
    session = home.session("one")
    home.session("old")
    ALICE.does(append, session / "messages.jsonl", said("secret"))
    ALICE.does((home.agent / "data/notes").write_bytes, b"secret")
    home.archived("old")
    for person in (ALICE, ROOT):
        assert person.does(look_at_everything, home.path) > 20
    return home


FORBIDDEN: dict[str, Callable[[Home], object]] = {
    "ls of the home": lambda home: os.listdir(home.path),
    "cd into the home": lambda home: os.chdir(home.path),
    "stat below the home": lambda home: os.stat(home.path / "agent"),
    "stat of a session": lambda home: os.stat(home.sessions / "one"),
    "ls of sessions": lambda home: os.listdir(home.sessions),
    "cd into a session": lambda home: os.chdir(home.sessions / "one"),
    "read of a log": lambda home: (home.sessions / "one/messages.jsonl").read_bytes(),
    "append to a log": lambda home: append(home.sessions / "one/messages.jsonl", said("x")),
    "read of the list": lambda home: (home.index / "list").read_bytes(),
    "write of a value": lambda home: put(home.sessions / "one/state", "done"),
    "read of an archived log": lambda home: (home.archive / home.agent.name / "old/messages.jsonl").read_bytes(),
    "read of an ordinary file": lambda home: (home.agent / "data/notes").read_bytes(),
    "stat of an ordinary directory": lambda home: os.stat(home.agent / "data"),
    "mkdir of a session": lambda home: os.mkdir(home.sessions / "mine"),
    "mkdir of an agent": lambda home: os.mkdir(home.path / "agent/mine"),
    "mkdir in the home": lambda home: os.mkdir(home.path / "mine"),
    "create in a session": lambda home: (home.sessions / "one/.x").write_bytes(b"x"),
    "create in the home": lambda home: (home.path / "mine").write_bytes(b"x"),
    "chmod of the home": lambda home: os.chmod(home.path, 0o777),
    "chown of the home": lambda home: os.chown(home.path, BOB.uid, BOB.gid),
    "access of a name that is not there": lambda home: os.stat(home.path / "nothing"),
    "xattr of a session": lambda home: os.getxattr(home.sessions / "one", "user.ctx.uuid"),
    "delete by xattr": lambda home: os.setxattr(home.sessions / "one", "user.ctx.delete", b"one"),
    "rename of a session": lambda home: os.rename(home.sessions / "one", home.sessions / "two"),
    "unlink of a log": lambda home: os.unlink(home.sessions / "one/messages.jsonl"),
    "rmdir of the agent": lambda home: os.rmdir(home.agent),
    "link of a log": lambda home: os.link(home.sessions / "one/messages.jsonl", home.mount.path / "home/1002/x"),
    "symlink into the home": lambda home: os.symlink("x", home.path / "mine"),
}


def test_a_home_is_closed_to_others_even_when_all_of_it_is_cached(private: Home) -> None:
    answers = {what: BOB.outcome(call, private) for what, call in FORBIDDEN.items()}
    changes = {what: answers.pop(what) for what in ("chmod of the home", "chown of the home")}
    assert set(answers.values()) == {"EACCES"}, answers
    assert set(changes.values()) == {"EPERM"}
    assert private.sessions.stat().st_uid == ALICE.uid


def test_nobody_gets_in_by_a_user_namespace(private: Home) -> None:
    shut_in = dataclasses.replace(BOB, maps_to_root=True)
    answers = {what: shut_in.outcome(call, private) for what, call in FORBIDDEN.items()}
    assert (answers.pop("chmod of the home"), answers.pop("chown of the home")) == ("EPERM", "EINVAL")
    assert set(answers.values()) == {"EACCES"}, answers


def test_nobody_gets_in_from_a_chroot(private: Home, tmp_path: Path) -> None:
    with chroot_with(private.mount.path, tmp_path / "root") as root:
        shut_in = dataclasses.replace(BOB, root=root)
        assert shut_in.does(os.listdir, "/") == ["ctx"]
        assert shut_in.does(os.listdir, "/ctx/home") == ["1002"]
        assert shut_in.outcome(os.listdir, "/ctx/home/1001") == "EACCES"
        assert shut_in.outcome(os.stat, f"/ctx/home/1001/agent/{private.agent.name}/session/one") == "EACCES"


def test_the_owner_works_from_a_chroot(private: Home, tmp_path: Path) -> None:
    with chroot_with(private.mount.path, tmp_path / "root") as root:
        shut_in = dataclasses.replace(ALICE, root=root)
        sessions = Path(f"/ctx/home/1001/agent/{private.agent.name}/session")
        shut_in.does((sessions / "inside").mkdir)
        shut_in.does(append, sessions / "inside/messages.jsonl", said("from inside"))
        assert shut_in.does((sessions / "inside/latest.md").read_bytes) == b"from inside\n"
    assert ALICE.does((private.sessions / "inside/latest.md").read_bytes) == b"from inside\n"


def test_the_owner_works_in_a_user_namespace_with_the_rules_of_the_outer_uid(private: Home) -> None:
    shut_in = dataclasses.replace(ALICE, maps_to_root=True)
    session = private.sessions / "ns"
    assert shut_in.does(os.getuid) == 0
    shut_in.does(session.mkdir)
    shut_in.does(append, session / "messages.jsonl", said("hi"))
    assert session.stat().st_uid == ALICE.uid
    assert shut_in.outcome(put, session / "latest.md", "x") == "EACCES"
    assert shut_in.outcome(put, private.archive / private.agent.name / "old/state", "done") == "EROFS"
    assert sorted(shut_in.does(os.listdir, private.mount.path / "home")) == ["1001"]


DERIVED_PATHS = ("one/latest.md", "one/created_at", "one/updated_at", "index/list")


@pytest.mark.parametrize("person", [ALICE, ROOT, dataclasses.replace(ALICE, maps_to_root=True)], ids=str)
@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_RDONLY | os.O_TRUNC])
def test_derived_files_are_written_by_nobody(private: Home, person: Person, flags: int) -> None:
    for name in DERIVED_PATHS:
        assert person.outcome(os.open, private.sessions / name, flags) == "EACCES", name
        assert person.outcome(os.truncate, private.sessions / name, 0) == "EACCES", name


@pytest.mark.parametrize("person", [ROOT, dataclasses.replace(ALICE, maps_to_root=True)], ids=str)
def test_archived_files_are_written_by_nobody(private: Home, person: Person) -> None:
    session = private.archive / private.agent.name / "old"
    for name in (*SESSION_FILES, "AGENTS.md"):
        flags = os.O_WRONLY | (os.O_CREAT if name == "AGENTS.md" else 0)
        assert person.outcome(os.open, session / name, flags) == "EROFS", name
    assert person.outcome((session / "x").mkdir) == "EROFS"
    assert person.outcome(os.unlink, session / "state") == "EROFS"
    assert person.outcome(os.setxattr, session, "user.ctx.delete", b"old") == "EROFS"


def test_modes_keep_the_owner_from_writing_what_is_archived(private: Home) -> None:
    session = private.archive / private.agent.name / "old"
    assert ALICE.outcome(os.open, session / "state", os.O_WRONLY) == "EACCES"
    assert ALICE.outcome(os.open, session / "new", os.O_WRONLY | os.O_CREAT) == "EACCES"


def test_a_write_handle_from_before_archiving_answers_erofs(home: Home) -> None:
    session = home.session("one")
    home.session("two")
    ALICE.does(put, home.index / "current", "two")
    with (
        (session / "messages.jsonl").open("ab", buffering=0) as log,
        (session / "state").open("wb", buffering=0) as state,
        (session / "latest.md").open("rb") as reader,
    ):
        log.write(said("before"))
        home.archived("one")
        assert outcome(log.write, said("after")) == "EROFS"
        assert outcome(state.write, b"done\n") == "EROFS"
        assert reader.read() == b"before\n"
    assert (home.archive / home.agent.name / "one/messages.jsonl").read_bytes() == said("before")


def attributes(path: Path) -> tuple[int, ...]:
    status = os.lstat(path)
    times = (status.st_mtime_ns, status.st_ctime_ns, status.st_atime_ns)
    owner = (status.st_uid, status.st_gid)
    return status.st_mode, status.st_ino, status.st_nlink, status.st_size, status.st_blocks, *times, *owner


@pytest.mark.parametrize("name", ["", "home", "home/1001", "home/1002", "shared", "status", "agent"])
def test_attributes_are_the_same_for_every_caller(private: Home, name: str) -> None:
    path = private.mount.path / name
    assert len({person.does(attributes, path) for person in (ALICE, BOB, ROOT)}) == 1
    # A user namespace shows owners by its own numbers, and nothing else differently.
    assert dataclasses.replace(BOB, maps_to_root=True).does(attributes, path)[:-2] == attributes(path)[:-2]


def test_a_home_that_is_stored_looks_like_one_that_is_not(private: Home) -> None:
    """Nothing can be learned from a home's attributes; uids without an account, so that no group tells."""
    homes = private.mount.path / "home"

    def shape(uid: int) -> tuple[int, ...]:
        status = os.lstat(homes / str(uid))
        assert (status.st_uid, status.st_gid) == (uid, uid)
        times = (status.st_mtime_ns, status.st_ctime_ns, status.st_atime_ns)
        return status.st_mode, status.st_nlink, status.st_size, status.st_blocks, *times

    before = shape(1001)
    assert BOB.does(lambda: {shape(uid) for uid in (1001, 1002, 1003, 70000)}) == {before}
    Person(1003, 1003).does((homes / "1003/agent/a").mkdir)
    assert BOB.does(lambda: {shape(uid) for uid in (1001, 1002, 1003, 70000)}) == {before}


def test_every_uid_has_a_home_and_nothing_else_is_one(mount: RunningMount) -> None:
    for uid in HOMES_OF_NOBODY:
        assert (mount.path / f"home/{uid}").stat().st_uid == uid
    for name in ("4294967295", "01001", "+1", "-1", "1e3", "²", "١", "root", "1001x", "99999999999"):
        assert outcome((mount.path / f"home/{name}").stat) == "ENOENT", name
        assert outcome((mount.path / f"home/{name}").mkdir) == "EINVAL", name
    assert os.listdir(mount.path / "home") == []


def test_ls_of_home_shows_ones_own_and_root_the_stored_ones(fresh_home: Home) -> None:
    homes = fresh_home.mount.path / "home"
    assert ALICE.does(os.listdir, homes) == ["1001"]
    assert BOB.does(os.listdir, homes) == ["1002"]
    assert ROOT.does(os.listdir, homes) == ["1001"]
    BOB.does((homes / "1002/agent/mine").mkdir)
    assert sorted(ROOT.does(os.listdir, homes)) == ["1001", "1002"]
    assert ALICE.does(os.listdir, homes) == ["1001"]


def test_looking_at_a_home_stores_nothing(mount: RunningMount) -> None:
    assert BOB.does(os.listdir, mount.path / "home/1002") == ["agent", "model", "archived_sessions"]
    assert BOB.does(os.listdir, mount.path / "home/1002/agent") == []
    assert ROOT.does(os.listdir, mount.path / "home") == []


MADE_BY_ROOT: dict[str, Callable[[Home], object]] = {
    "agent/roots": lambda home: (home.path / "agent/roots").mkdir(),
    "agent/roots/data": lambda home: None,
    "agent/roots/session": lambda home: None,
    "agent/roots/session/s": lambda home: (home.path / "agent/roots/session/s").mkdir(),
    "agent/roots/session/s/messages.jsonl": lambda home: append(
        home.path / "agent/roots/session/s/messages.jsonl", said("hi")
    ),
    "agent/roots/session/s/AGENTS.md": lambda home: put(home.path / "agent/roots/session/s/AGENTS.md", "x"),
    "agent/roots/session/index/by-hash/h": lambda home: put(home.path / "agent/roots/session/index/by-hash/h", "s"),
    "agent/roots/session/index/current": lambda home: put(home.path / "agent/roots/session/index/current", "s"),
    "model/m.d": lambda home: (home.path / "model/m.d").mkdir(),
    "model/p": lambda home: (home.path / "model/p").mkdir(),
    "model/p/m.d/session": lambda home: (home.path / "model/p/m.d").mkdir(),
    "archived_sessions/roots": lambda home: (home.path / "archived_sessions/roots").mkdir(),
    "agent/roots/session/branched": lambda home: os.setxattr(
        home.path / "agent/roots/session/s", "user.ctx.branch", b"branched"
    ),
}


def test_what_root_makes_in_a_home_belongs_to_the_homes_user(fresh_home: Home) -> None:
    """Field report 29: files made by a root daemon, or by root, never lock the user out."""
    for name, make in MADE_BY_ROOT.items():
        ROOT.does(make, fresh_home)
        status = (fresh_home.path / name).lstat()
        assert (status.st_uid, status.st_gid) == (ALICE.uid, ALICE.gid), name
    session = fresh_home.path / "agent/roots/session/s"
    ALICE.does(append, session / "messages.jsonl", said("mine"))
    ALICE.does(put, session / "AGENTS.md", "mine")
    ALICE.does((fresh_home.path / "agent/roots/data/x").write_bytes, b"x")
    assert (fresh_home.path / "agent/roots/data/x").stat().st_uid == ALICE.uid


def test_chmod_and_chown_change_nothing_but_to_what_is(home: Home) -> None:
    log = home.session("one") / "messages.jsonl"
    for person in (ALICE, ROOT):
        assert person.outcome(os.chmod, log, 0o600) == "ok"
        assert person.outcome(os.chown, log, ALICE.uid, ALICE.gid) == "ok"
        assert person.outcome(os.chmod, log, 0o644) == "EPERM"
        assert person.outcome(os.chmod, home.path, 0o755) == "EPERM"
    assert ROOT.outcome(os.chown, log, BOB.uid, BOB.gid) == "EPERM"
    assert oct(log.stat().st_mode) == "0o100600"


def handed_on(path: Path, flags: int) -> int:
    """A descriptor that Alice opened and sent over a socket."""
    ours, theirs = socket.socketpair()

    def open_and_send() -> None:
        socket.send_fds(theirs, [b"x"], [os.open(path, flags)])

    with ours, theirs:
        ALICE.does(open_and_send)
        _, [descriptor], _, _ = socket.recv_fds(ours, 1, 1)
    return descriptor


def test_a_descriptor_that_is_handed_on_keeps_working(home: Home) -> None:
    session = home.session("one")
    descriptor = handed_on(session / "messages.jsonl", os.O_RDWR | os.O_APPEND)
    try:
        assert BOB.does(os.write, descriptor, said("by bob")) == len(said("by bob"))
        assert BOB.does(os.pread, descriptor, 1000, 0) == said("by bob")
        assert BOB.does(os.fstat, descriptor).st_size == len(said("by bob"))
        assert BOB.outcome(os.fsync, descriptor) == "ok"
        assert BOB.outcome(os.ftruncate, descriptor, len(said("by bob"))) == "ok"
    finally:
        os.close(descriptor)
    assert session.joinpath("latest.md").read_bytes() == b"by bob\n"
    assert BOB.outcome(os.open, session / "messages.jsonl", os.O_RDONLY) == "EACCES"


def test_who_was_handed_an_ordinary_directory_opens_and_changes_nothing_in_it(home: Home) -> None:
    """Whatever its modes say: a home is its uid's. What was opened by Alice goes on working."""
    data = home.agent / "data"
    ALICE.does(data.chmod, 0o777)
    ALICE.does((data / "file").write_bytes, b"hers")
    ALICE.does((data / "file").chmod, 0o666)
    descriptors = [handed_on(data, os.O_RDONLY | os.O_DIRECTORY), handed_on(data / "file", os.O_RDWR)]
    directory, file = descriptors
    try:
        assert BOB.does(os.pread, file, 10, 0) == b"hers"
        assert BOB.does(os.pwrite, file, b"his!", 0) == 4
        assert BOB.does(os.listdir, directory) == ["file"]
        for flags in (os.O_RDONLY, os.O_WRONLY):
            assert BOB.outcome(os.open, "file", flags, dir_fd=directory) == "EACCES"
        assert BOB.outcome(os.open, "new", os.O_WRONLY | os.O_CREAT, dir_fd=directory) == "EACCES"
        assert BOB.outcome(os.mkdir, "new", dir_fd=directory) == "EACCES"
        assert BOB.outcome(os.unlink, "file", dir_fd=directory) == "EACCES"
        assert ROOT.outcome(os.open, "file", os.O_RDONLY, dir_fd=directory) == "ok"
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    assert ALICE.does((data / "file").read_bytes) == b"his!"


def test_a_directory_that_is_handed_on_can_be_listed(home: Home) -> None:
    home.session("one")
    descriptor = handed_on(home.sessions, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert sorted(BOB.does(os.listdir, descriptor)) == ["index", "one"]
    finally:
        os.close(descriptor)


def test_an_ordinary_users_file_mode_is_what_they_ask_for(home: Home) -> None:
    def make() -> None:
        os.umask(0o077)
        (home.agent / "data/private").write_bytes(b"x")
        os.umask(0)
        os.close(os.open(home.agent / "data/open", os.O_CREAT | os.O_WRONLY, 0o666))
        (home.sessions / "umasked").mkdir(0o777)

    ALICE.does(make)
    assert oct((home.agent / "data/private").stat().st_mode)[-3:] == "600"
    assert oct((home.agent / "data/open").stat().st_mode)[-3:] == "666"
    assert oct((home.sessions / "umasked").stat().st_mode)[-3:] == "700"
