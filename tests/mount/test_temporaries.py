"""Spec 1.4, Temporaries and renames: what programs make beside a file, and what a rename of it does."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mount.acting import (
    entries,
    message,
    new_session,
    opened,
    refused,
    save,
    write_once,
)
from tests.people import ALICE, BOB, ROOT

A, B, C = message("a"), message("b"), message("c")
UUID = "0f1e2d3c-4b5a-4697-8877-665544332211"
MIB = 1 << 20


# What a temporary is.

PLACES = {
    "session": ("", ["tmpabc", "sedXyZ1", ".state.swp", "state~", "#state#", "a b", "\N{OGHAM SPACE MARK}", "x" * 200]),
    "index": ("../index", ["tmpabc", "list~", ".current.swp"]),
    "by-hash": ("../index/by-hash", [".tmpabc", "abc~"]),
    "by-uuid": ("../index/by-uuid", ["tmpabc", f"{UUID}~", UUID.upper().replace("0F", "AF"), "abc"]),
}


@pytest.mark.parametrize(("place", "name"), [(place, name) for place, (_, names) in PLACES.items() for name in names])
def test_any_name_that_is_not_in_the_table_makes_a_temporary(session: Path, place: str, name: str) -> None:
    path = Path(os.path.normpath(session / PLACES[place][0])) / name
    path.write_bytes(b"anything\n\0")
    assert path.read_bytes() == b"anything\n\0"
    assert name not in os.listdir(path.parent)
    path.chmod(0o755)
    os.utime(path, (1, 1))
    if os.getuid() == 0:
        os.chown(path, 5, 5)
    status = path.stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_size) == (0o600, os.getuid(), 10)
    path.unlink()
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("4913", errno.EACCES),
        ("5036", errno.EACCES),
        ("../index/4913", errno.EACCES),
        ("../index/by-uuid/4913", errno.EACCES),
        ("../index/by-hash/a b", errno.EINVAL),
        ("../index/by-hash/x.sock", errno.EINVAL),
        ("../index/by-cwd/tmp", errno.EACCES),
        ("../file", errno.EPERM),
    ],
)
def test_some_names_make_none(session: Path, name: str, number: int) -> None:
    path = Path(os.path.normpath(session / name))
    with refused(number):
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    assert not path.exists()


@pytest.mark.parametrize("where", ["", "../index", "../index/by-uuid"])
def test_nothing_but_regular_files_is_made_there(session: Path, where: str) -> None:
    directory = Path(os.path.normpath(session / where))
    made = directory / "made"
    (directory / "tmp").write_bytes(b"x")
    attempts: list[Callable[[], object]] = [
        made.mkdir,
        lambda: made.symlink_to("tmp"),
        lambda: os.mkfifo(made),
        lambda: os.mknod(made, 0o600),
        lambda: os.link(directory / "tmp", made),
        lambda: os.link(session / "state", made),
    ]
    for attempt in attempts:
        with refused(errno.EPERM):
            attempt()
    assert not made.exists()


def test_a_temporary_is_read_written_and_cut_like_any_file(session: Path) -> None:
    path = session / "scratch"
    with path.open("w+b", buffering=0) as file:
        file.write(b"0123456789")
        os.pwrite(file.fileno(), b"AB", 4)
        os.pwrite(file.fileno(), b"!", 12)
        assert os.pread(file.fileno(), 100, 0) == b"0123AB6789\0\0!"
        file.truncate(3)
        file.truncate(5)
    with path.open("ab", buffering=0) as file:
        file.write(b"end")
    assert path.read_bytes() == b"012\0\0end"
    os.truncate(path, 1)
    assert path.read_bytes() == b"0"
    path.write_bytes(b"")
    assert path.stat().st_size == 0


def test_it_stays_readable_through_an_open_handle_after_unlink(session: Path) -> None:
    with opened(session / "gone", os.O_RDWR | os.O_CREAT) as descriptor:
        os.write(descriptor, b"still here")
        (session / "gone").unlink()
        os.write(descriptor, b"!")
        assert os.pread(descriptor, 100, 0) == b"still here!"
        assert os.fstat(descriptor).st_size == 11


def test_o_excl_holds(session: Path) -> None:
    (session / "tmp").write_bytes(b"mine")
    with refused(errno.EEXIST):
        os.open(session / "tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def test_it_exists_only_for_its_own_uid(ctx: Path) -> None:
    session = new_session(ctx, ALICE)
    path = session / "tmp"
    ALICE.does(path.write_bytes, b"alice")
    assert ROOT.outcome(path.stat) == "ENOENT"
    ROOT.does(path.write_bytes, b"root!!")
    assert ALICE.does(path.read_bytes) == b"alice"
    assert ROOT.does(path.read_bytes) == b"root!!"
    assert BOB.outcome(path.stat) == "EACCES"
    ALICE.does(path.unlink)
    assert ROOT.does(path.read_bytes) == b"root!!"


def test_names_that_look_alike_are_distinct(session: Path) -> None:
    names = ["a_b", "a b", "e\u0301", "\u00e9", "A", "a"]
    for name in names:
        (session / name).write_text(name)
    assert [(session / name).read_text() for name in names] == names


def test_the_same_name_in_two_sessions_is_two_temporaries(ctx: Path) -> None:
    one, two = new_session(ctx), new_session(ctx)
    (one / "tmp").write_bytes(b"one")
    (two / "tmp").write_bytes(b"two")
    assert (one / "tmp").read_bytes() == b"one"


# The budget.


def test_64_mib_a_uid_and_its_release(ctx: Path) -> None:
    session = new_session(ctx, ALICE)

    def fill() -> int:
        with opened(session / "big", os.O_WRONLY | os.O_CREAT) as descriptor:
            for _ in range(64):
                os.write(descriptor, b"x" * MIB)
            with refused(errno.ENOSPC):
                os.write(descriptor, b"x")
            with refused(errno.ENOSPC):
                os.ftruncate(descriptor, 65 * MIB)
        return (session / "big").stat().st_size

    assert ALICE.does(fill) == 64 * MIB
    assert ALICE.outcome((session / "small").write_bytes, b"x") == "ENOSPC"
    assert ALICE.outcome(write_once, session / "messages.jsonl", A[:-1]) == "ENOSPC"
    assert ALICE.outcome(write_once, session / "messages.jsonl", A) == "ok"
    assert ROOT.outcome((session / "small").write_bytes, b"x" * MIB) == "ok"
    ALICE.does((session / "big").unlink)
    ALICE.does((session / "small").write_bytes, b"x" * MIB)
    ALICE.does((session / "small").unlink)
    ROOT.does((session / "small").unlink)


# A rename onto a file is the write to it: (file, content that is taken, content then, refused content, errno).

SAVES: list[tuple[str, bytes, bytes, bytes, int]] = [
    ("messages.jsonl", A + B, A + B, b"garbage\n", errno.EPERM),
    ("messages.jsonl", A + B, A + B, A + b"garbage\n", errno.EINVAL),
    ("messages.jsonl", A + B, A + B, A + B[:-1], errno.EINVAL),
    ("messages.jsonl", A, A, b"", errno.EPERM),
    ("messages.jsonl", A + B, A + B, B + A, errno.EPERM),
    ("events.jsonl", b'{"type":"cwd","cwd":"/x"}\n', b'{"type":"cwd","cwd":"/x"}\n', A, errno.EINVAL),
    ("state", b"active\n", b"active\n", b"running\n", errno.EINVAL),
    ("state", b"active", b"active\n", b"", errno.EINVAL),
    ("cwd", b"/x", b"/x\n", b"x\n", errno.EINVAL),
    ("cwd", b"/x", b"/x\n", b"/" + b"x" * 5000, errno.EINVAL),
    ("meta.json", b'{ "client": "x" }', b'{"client":"x"}\n', b'{"client":1}', errno.EINVAL),
    ("meta.json", b'{"a":1}\n', b'{"a":1}\n', b'{"x":"%s"}' % (b"x" * 65536), errno.EFBIG),
    ("AGENTS.md", b"be kind\n", b"be kind\n", b"\xff", errno.EINVAL),
    ("SKILLS.md", b"", b"", b"x" * (MIB + 1), errno.EFBIG),
    ("../index/current", b"{name}\n", b"{name}\n", b"nobody\n", errno.ENOENT),
    ("../index/by-uuid/" + UUID, b"{name}", b"{name}\n", b"a/b\n", errno.EINVAL),
]


@pytest.mark.parametrize(("name", "taken", "then", "bad", "number"), SAVES)
def test_a_rename_onto_a_file_is_the_write_to_it(
    started: Path, name: str, taken: bytes, then: bytes, bad: bytes, number: int
) -> None:
    path = Path(os.path.normpath(started / name))
    before = path.read_bytes() if path.exists() else None
    with refused(number):
        save(path, bad)
    assert (path.parent / "tmp-save").read_bytes() == bad
    assert (path.read_bytes() if path.exists() else None) == before
    (path.parent / "tmp-save").unlink()
    save(path, taken.replace(b"{name}", started.name.encode()))
    assert path.read_bytes() == then.replace(b"{name}", started.name.encode())
    assert path.stat().st_size == len(path.read_bytes())
    assert not (path.parent / "tmp-save").exists()


def test_a_key_of_by_hash_is_saved_by_rename(session: Path) -> None:
    key = session.parent / "index/by-hash" / f"k-{session.name}"
    with refused(errno.ENOENT):
        save(key, b"nobody\n", ".tmp")
    assert not key.exists()
    (key.parent / ".tmp").unlink()
    save(key, session.name.encode(), ".tmp")
    assert key.read_text() == f"{session.name}\n"
    assert key.name in os.listdir(key.parent)
    key.unlink()


@pytest.mark.parametrize("name", ["latest.md", "created_at", "updated_at", "../index/list"])
def test_a_rename_onto_a_derived_file_is_refused(started: Path, name: str) -> None:
    path = Path(os.path.normpath(started / name))
    content = path.read_bytes()
    with refused(errno.EACCES):
        save(path, b"x\n")
    assert path.read_bytes() == content
    (path.parent / "tmp-save").unlink()


def test_a_rename_onto_a_directory_is_refused(session: Path) -> None:
    with refused(errno.EISDIR):
        save(session / "context", b"x\n")


def test_a_refused_save_says_so_again_and_then_works(started: Path) -> None:
    tmp = started / "tmp"
    tmp.write_bytes(A + b"garbage\n")
    for _ in range(2):
        with refused(errno.EINVAL):
            tmp.rename(started / "messages.jsonl")
    tmp.write_bytes(A + B)
    tmp.rename(started / "messages.jsonl")
    assert (started / "messages.jsonl").read_bytes() == A + B


def test_saves_in_a_row(session: Path) -> None:
    log = session / "messages.jsonl"
    for number in range(10):
        save(log, log.read_bytes() + message(str(number)))
        write_once(log, message(f"{number} appended"))
        assert log.stat().st_size == len(log.read_bytes())
    assert entries(session) == 20


def test_the_same_content_is_no_change(started: Path) -> None:
    log = started / "messages.jsonl"
    before = log.stat().st_mtime_ns
    save(log, A)
    assert (entries(started), log.stat().st_mtime_ns) == (1, before)


# After the rename.


def test_a_handle_of_a_renamed_temporary_reads_its_own_content(started: Path) -> None:
    with opened(started / "tmp", os.O_RDWR | os.O_CREAT) as descriptor:
        os.write(descriptor, b"/new")
        (started / "tmp").rename(started / "cwd")
        (started / "cwd").write_text("/newer")
        assert os.pread(descriptor, 100, 0) == b"/new"
        for change in (lambda fd: os.write(fd, b"x"), lambda fd: os.ftruncate(fd, 0)):
            with refused(errno.EBADF):
                change(descriptor)
    assert (started / "cwd").read_text() == "/newer\n"


def test_the_name_leads_to_the_file_at_once(started: Path) -> None:
    log = started / "messages.jsonl"
    inode = log.stat().st_ino
    save(log, A + B)
    assert log.stat().st_ino == inode
    write_once(log, C)
    assert log.read_bytes() == A + B + C
    assert [name for name in os.listdir(started) if "tmp" in name] == []


def test_a_descriptor_of_the_temporary_is_an_alias_of_the_file(started: Path) -> None:
    """Its inode number stays, what it shows and takes is the file's."""
    log = started / "messages.jsonl"
    with opened(started / "tmp", os.O_RDWR | os.O_CREAT) as descriptor:
        os.write(descriptor, A + B)
        (started / "tmp").rename(log)
        alias = Path(f"/proc/self/fd/{descriptor}")
        assert alias.read_bytes() == A + B
        write_once(alias, C)
        assert log.read_bytes() == alias.read_bytes() == A + B + C
        write_once(log, A)
        assert os.stat(descriptor).st_size == alias.stat().st_size == log.stat().st_size == len(alias.read_bytes())
        with refused(errno.EPERM):
            os.truncate(alias, 0)


def test_reading_on_through_an_old_handle_of_the_file(started: Path) -> None:
    log = started / "messages.jsonl"
    with opened(log, os.O_RDONLY) as descriptor:
        save(log, A + B)
        assert os.read(descriptor, 1000) == A + B
        write_once(log, C)
        assert os.read(descriptor, 1000) == C
