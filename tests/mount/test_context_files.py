"""The runtime's own files in ``context/`` (spec 1.7, 1.8): ordinary ones, as private as their session, gone with it."""

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mount.acting import EXCHANGE, renameat2
from tests.mount.scenery import CONTEXT_FILES, Home, described, line, listing, put, said
from tests.mounting import RunningMount, running_mount
from tests.people import ALICE, BOB, Person, chroot_with, outcome

ALICES = (ALICE.uid, ALICE.gid)


@pytest.fixture(scope="module", params=["sqlite", "jsonl"])
def module_mount(request: pytest.FixtureRequest, fuse_device: None) -> Iterator[RunningMount]:
    """A mount of each store."""
    with running_mount(request.param) as mounted:
        yield mounted


def made(path: Path, content: bytes = b"own") -> Path:
    """A file that Alice made."""
    ALICE.does(path.write_bytes, content)
    return path


def save_as_vim(path: Path, content: bytes) -> None:
    """Writes a copy beside the file, keeps the old one as a backup, and puts the copy in its place."""
    copy = path.with_name("4913")
    copy.write_bytes(content)
    os.rename(path, path.with_name(path.name + "~"))
    os.rename(copy, path)
    path.with_name(path.name + "~").unlink()


def test_ordinary_files_work_as_they_do_anywhere(context: Path) -> None:
    def work() -> None:
        pack, pinned = context / "pack.json", context / "pinned"
        pack.write_bytes(b"{}\n")
        save_as_vim(pack, b'{"items":[]}\n')
        pinned.mkdir()
        os.rename(pack, pinned / "pack.json")
        os.rename(pinned / "pack.json", pack)
        os.link(pack, pinned / "same")
        os.symlink("../pack.json", pinned / "link")
        os.mkfifo(context / "pipe")
        (pinned / "deep/er").mkdir(parents=True)
        renameat2(pinned / "deep", context / "pipe", EXCHANGE)
        subprocess.run(["sed", "-i", "s/items/things/", pack], check=True)

    ALICE.does(work)
    assert listing(context) == CONTEXT_FILES | {"pack.json", "pinned", "pipe"}
    assert (context / "pack.json").read_bytes() == b'{"things":[]}\n'
    assert (context / "pinned/link").read_bytes() == b'{"things":[]}\n'
    assert described(context / "pack.json")[1] == ALICES
    assert listing(context / "pipe") == {"er"}
    subprocess.run(f"rm -r {context}/*", shell=True, check=True)


def test_many_names_are_each_listed_once(context: Path) -> None:
    names = {f"n{number:04}" for number in range(700)}

    def make() -> None:
        for name in names:
            (context / name).touch()

    ALICE.does(make)
    found = os.listdir(context)
    assert sorted(found) == sorted(names | CONTEXT_FILES)
    for entry in os.scandir(context):
        assert entry.inode() == entry.stat(follow_symlinks=False).st_ino
        assert entry.is_file(follow_symlinks=False)
        assert entry.stat().st_size == len(Path(entry.path).read_bytes())


def test_a_directory_shows_when_names_in_it_changed(context: Path) -> None:
    times = [context.stat().st_mtime_ns]
    for change in (
        lambda: made(context / "a"),
        lambda: os.rename(context / "a", context / "b"),
        (context / "b").unlink,
    ):
        change()
        times.append(context.stat().st_mtime_ns)
    assert times == sorted(times)
    assert times[0] < times[-1]


MOVES: dict[str, tuple[Callable[[Home, Path], Any], str]] = {
    "into an agent's data": (lambda h, c: os.rename(c / "own", h.agent / "data/own"), "EXDEV"),
    "out of it": (lambda h, c: os.rename(h.agent / "data/x", c / "x"), "EXDEV"),
    "a link out": (lambda h, c: os.link(c / "own", h.agent / "data/own"), "EXDEV"),
    "a link in": (lambda h, c: os.link(h.agent / "data/x", c / "x"), "EXDEV"),
    "to another session's": (lambda h, c: os.rename(c / "own", h.sessions / "two/context/own"), "EXDEV"),
    "from deep inside": (lambda h, c: os.rename(c / "d/f", h.sessions / "two/context/f"), "EXDEV"),
    "into the session": (lambda h, c: os.rename(c / "own", c.parent / "state"), "EXDEV"),
    "a log": (lambda h, c: os.rename(c.parent / "messages.jsonl", c / "messages"), "EXDEV"),
    "a link of a log": (lambda h, c: os.link(c.parent / "messages.jsonl", c / "messages"), "EPERM"),
    "a session": (lambda h, c: os.rename(h.sessions / "two", c / "two"), "EPERM"),
}


@pytest.mark.parametrize("name", MOVES)
def test_nothing_goes_in_or_out_by_a_rename_or_a_link(home: Home, context: Path, name: str) -> None:
    home.session("two")
    made(context / "own")
    made(home.agent / "data/x")
    ALICE.does((context / "d").mkdir)
    made(context / "d/f")
    made(home.sessions / "two/context/there")
    move, refusal = MOVES[name]
    assert ALICE.outcome(move, home, context) == refusal
    assert (context / "own").read_bytes() == (context / "d/f").read_bytes() == b"own"


def test_a_branch_begins_without_them_and_shares_none(home: Home, context: Path) -> None:
    made(context / "own")
    os.setxattr(context.parent, "user.ctx.branch", b"two 1")
    child = home.sessions / "two/context"
    assert listing(child) == CONTEXT_FILES - {"request.json"}
    made(child / "own", b"child's")
    assert (context / "own").read_bytes() == b"own"
    assert (child / "messages.jsonl").read_bytes() == line("user", "Hello")


def test_an_archived_session_takes_them_along_and_nobody_changes_them(home: Home, context: Path) -> None:
    made(context / "own")
    ALICE.does((context / "d").mkdir)
    made(context / "d/f")
    with (context / "d/f").open("r+b", buffering=0) as writer:
        old = home.put_away("one") / "context"
        assert outcome(writer.write, b"x") == "EROFS"
    assert listing(old) == CONTEXT_FILES | {"own", "d"}
    assert (old / "own").read_bytes() == (old / "d/f").read_bytes() == b"own"
    changes: list[Callable[[], Any]] = [
        lambda: os.open(old / "own", os.O_WRONLY),
        lambda: os.open(old / "d/f", os.O_WRONLY | os.O_TRUNC),
        lambda: os.open(old / "d/new", os.O_WRONLY | os.O_CREAT),
        lambda: os.open(old / "new", os.O_WRONLY | os.O_CREAT),
        lambda: os.unlink(old / "own"),
        lambda: os.unlink(old / "log.jsonl"),
        lambda: os.mkdir(old / "d/e"),
        lambda: os.rmdir(old / "d"),
        lambda: os.symlink("x", old / "d/l"),
        lambda: os.link(old / "own", old / "d/l"),
        lambda: os.rename(old / "d/f", old / "d/g"),
        lambda: os.rename(old / "own", old / "own2"),
        lambda: os.chmod(old / "own", 0o644),
        lambda: os.truncate(old / "d/f", 0),
        lambda: os.utime(old / "own", (1, 1)),
        lambda: os.setxattr(old / "own", "user.x", b"1"),
    ]
    for number, change in enumerate(changes):
        assert outcome(change) == "EROFS", number
    assert (old / "own").read_bytes() == (old / "d/f").read_bytes() == b"own"


def test_they_are_read_only_after_a_restart_too(mount: RunningMount) -> None:
    home = Home(mount, "coder")
    made(home.session("one") / "context/own")
    old = home.put_away("one") / "context"
    assert (old / "own").read_bytes() == b"own"
    mount.restart()
    assert outcome(os.open, old / "own", os.O_WRONLY) == "EROFS"
    assert (old / "own").read_bytes() == b"own"


def test_they_go_with_their_session(home: Home, context: Path) -> None:
    secret = os.urandom(30).hex().encode()
    home.session("two")
    put(home.index / "current", "two")
    ALICE.does((context / "d").mkdir)
    made(context / "d/f", secret)
    with (context / "d/f").open("rb") as still_open:
        os.setxattr(context.parent, "user.ctx.delete", b"one")
        assert still_open.read() == secret
    found = subprocess.run(["grep", "-r", secret.decode(), home.mount.store], capture_output=True, check=False)
    assert found.returncode == 1, found.stdout
    assert outcome(os.stat, context / "d/f") == "ENOENT"
    home.session("one")
    assert listing(home.sessions / "one/context") == CONTEXT_FILES - {"request.json"}


def test_a_deletion_that_is_refused_leaves_them(home: Home, context: Path) -> None:
    made(context / "own")
    for name in (b"one", b"other"):
        assert outcome(os.setxattr, context.parent, "user.ctx.delete", name) in ("EBUSY", "EINVAL")
    assert (context / "own").read_bytes() == b"own"


@pytest.mark.parametrize("lives", [True, False], ids=["its session lives", "its session is gone"])
def test_what_a_killed_deletion_put_aside_is_put_back_or_deleted(mount: RunningMount, *, lives: bool) -> None:
    session = Home(mount, "coder").session("one")
    made(session / "context/own")
    assert mount.stop() == 0
    base = mount.store / "disk"
    [root] = (base / "home" / str(ALICE.uid) / "context").iterdir()
    aside = base / ".ctxfs-removed"
    aside.mkdir()
    root.rename(aside / (root.name if lives else "999"))
    mount.start()
    assert listing(aside) == set()
    assert outcome((session / "context/own").read_bytes) == ("ok" if lives else "ENOENT")


# Whose they are.


def test_another_user_sees_and_changes_nothing(context: Path) -> None:
    made(context / "own")
    ALICE.does((context / "d").mkdir)
    ALICE.does(os.chmod, context / "d", 0o777)
    for path in (context / "own", context / "d", context / "log.jsonl", context):
        path.stat()
        assert BOB.outcome(os.stat, path) == "EACCES"
        assert BOB.outcome(os.listdir, path) == "EACCES"
    assert BOB.outcome(os.mkdir, context / "x") == "EACCES"
    assert BOB.outcome(os.unlink, context / "log.jsonl") == "EACCES"


def test_nor_does_who_was_handed_a_descriptor(context: Path) -> None:
    """The kernel checks no directory above a descriptor; the daemon asks whose home it is."""
    ALICE.does((context / "d").mkdir)
    ALICE.does(os.chmod, context / "d", 0o777)
    made(context / "d/f")
    inside = os.open(context / "d", os.O_RDONLY)
    try:
        assert BOB.outcome(os.open, "f", os.O_RDONLY, dir_fd=inside) == "EACCES"
        assert BOB.outcome(os.open, "g", os.O_WRONLY | os.O_CREAT, dir_fd=inside) == "EACCES"
        assert BOB.outcome(os.mkdir, "h", dir_fd=inside) == "EACCES"
        assert ALICE.outcome(os.mkdir, "h", dir_fd=inside) == "ok"
    finally:
        os.close(inside)


def test_the_same_holds_in_a_chroot(home: Home, context: Path, tmp_path: Path) -> None:
    inside = Path("/ctx") / context.relative_to(home.mount.path)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.owner() == "root" and parent.name.startswith("pytest"):
            parent.chmod(0o755)
    with chroot_with(home.mount.path, tmp_path / "root") as root:
        alice = Person(ALICE.uid, ALICE.gid, root=root)
        alice.does((inside / "own").write_bytes, b"from inside")
        alice.does((inside / "d").mkdir)
        assert alice.does((inside / "messages.jsonl").read_bytes) == line("user", "Hello") + said("Hi")
        assert alice.outcome((inside / "log.jsonl").write_bytes, b"") == "EACCES"
        bob = Person(BOB.uid, BOB.gid, root=root)
        assert bob.outcome(os.listdir, inside) == "EACCES"
    assert (context / "own").read_bytes() == b"from inside"
    assert described(context / "own")[1] == ALICES


def test_members_of_a_shared_space_share_them(module_mount: RunningMount) -> None:
    team = 2001
    ann = Person(1001, 1001, groups=(team,))
    ben = Person(1002, 1002, groups=(team,))
    space = module_mount.path / "shared/ctxteam"
    space.mkdir()
    os.chown(space, 0, team)
    ann.does((space / "agent/a").mkdir)
    session = space / "agent/a/session/s"
    ann.does(session.mkdir)
    context = session / "context"
    assert described(context) == ("drwxrws---", (ann.uid, team))
    assert described(context / "log.jsonl") == ("-r--r-----", (ann.uid, team))
    ben.does((context / "own").write_bytes, b"x")
    assert described(context / "own")[1] == (ben.uid, team)
    assert ann.does((context / "log.jsonl").read_bytes) == b""
    assert Person(1003, 1003).outcome(os.listdir, context) == "EACCES"
    os.chown(space, 0, team + 1)
    assert ann.outcome(os.listdir, context) == "EACCES"
    cat = Person(1003, 1003, groups=(team + 1,))
    cat.does((context / "later").write_bytes, b"y")
    assert described(context / "later")[1] == (cat.uid, team + 1)


def test_a_user_cannot_make_an_image_of_a_derived_name_on_the_disk(context: Path) -> None:
    """A derived name is never looked for among the runtime's files."""
    ALICE.does((context / "d").mkdir)
    made(context / "d/log.jsonl", b"in a directory of its own it is any name")
    assert stat.S_ISREG((context / "log.jsonl").stat().st_mode)
    assert (context / "d/log.jsonl").read_bytes().startswith(b"in a")
