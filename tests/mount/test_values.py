"""Spec 1.4, Values: what a write to a small file does, when, and what it refuses."""

import errno
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxfs.budget import USER_LIMIT
from tests.mount.acting import agent_directory, entries, message, new_session, opened, refused, write_once
from tests.mount.scenery import SESSION_FILES
from tests.people import ALICE, ROOT, Person

UUID = "0f1e2d3c-4b5a-4697-8877-665544332211"
META = '{"client":"test","scope":"private"}'
KIB64 = 64 << 10

# What each value takes (and then shows), and the event of it.
ACCEPTED = [
    ("state", "active", {"type": "state", "from": "idle", "state": "active"}),
    ("cwd", "/home/me/project", {"type": "cwd", "cwd": "/home/me/project"}),
    ("cwd", "/a b/é/😀", {"type": "cwd", "cwd": "/a b/é/😀"}),
    ("meta.json", META, {"type": "meta", "meta": json.loads(META)}),
]


def last_event(session: Path) -> object:
    return json.loads((session / "events.jsonl").read_text().splitlines()[-1])


def put(path: Path, text: str | bytes) -> None:
    """``echo text > path``, without the newline."""
    write_once(path, text if isinstance(text, bytes) else text.encode(), os.O_WRONLY | os.O_TRUNC)


def make(path: Path, text: str) -> None:
    """As ``put``, of a file that may be new."""
    write_once(path, text.encode(), os.O_WRONLY | os.O_TRUNC | os.O_CREAT)


@pytest.mark.parametrize(("name", "text", "recorded"), ACCEPTED)
def test_a_value_takes_effect_in_the_write_that_completes_it(
    session: Path, name: str, text: str, recorded: object
) -> None:
    with opened(session / name, os.O_WRONLY) as descriptor:
        os.write(descriptor, f"{text}\n".encode())
        assert (session / name).read_text() == f"{text}\n"
        assert last_event(session) == recorded


@pytest.mark.parametrize(("name", "text", "recorded"), ACCEPTED)
@pytest.mark.parametrize("finish", [os.fsync, os.close])
def test_without_its_newline_it_takes_effect_at_fsync_or_close(
    session: Path, name: str, text: str, recorded: object, finish: Callable[[int], None]
) -> None:
    before = (session / name).read_text()
    with opened(session / name, os.O_WRONLY | os.O_TRUNC) as descriptor:
        os.write(descriptor, text.encode())
        assert (session / name).read_text() == before
        finish(descriptor if finish is os.fsync else os.dup(descriptor))
        assert (session / name).read_text() == f"{text}\n"
        assert last_event(session) == recorded


@pytest.mark.parametrize(("name", "text", "recorded"), ACCEPTED)
def test_o_append_counts_from_the_start(session: Path, name: str, text: str, recorded: object) -> None:
    write_once(session / name, f"{text}\n".encode())
    assert (session / name).read_text() == f"{text}\n"
    assert last_event(session) == recorded


@pytest.mark.parametrize(("name", "text", "recorded"), ACCEPTED)
def test_a_value_may_come_in_pieces(session: Path, name: str, text: str, recorded: object) -> None:
    with opened(session / name, os.O_WRONLY | os.O_TRUNC) as descriptor:
        for byte in f"{text}\n".encode():
            os.write(descriptor, bytes([byte]))
    assert last_event(session) == recorded
    assert entries(session) == 1


@pytest.mark.parametrize(("name", "text", "recorded"), ACCEPTED)
def test_writing_the_value_it_has_records_nothing(session: Path, name: str, text: str, recorded: object) -> None:
    put(session / name, text)
    before = (session / name).stat().st_mtime_ns, (session / "events.jsonl").stat().st_mtime_ns, entries(session)
    for again in (text, f"{text}\n"):
        put(session / name, again)
    after = (session / name).stat().st_mtime_ns, (session / "events.jsonl").stat().st_mtime_ns, entries(session)
    assert after == before


@pytest.mark.parametrize("name", ["state", "cwd", "meta.json"])
def test_writing_the_first_value_back_records_nothing(session: Path, name: str) -> None:
    put(session / name, (session / name).read_bytes())
    assert entries(session) == 0


def test_meta_is_the_same_whatever_its_spelling(session: Path) -> None:
    put(session / "meta.json", META)
    put(session / "meta.json", '{\n  "scope": "private",\n  "client": "\\u0074est"\n}\n')
    assert entries(session) == 1
    assert (session / "meta.json").read_text() == f"{META}\n"


def test_pretty_json_may_come_line_by_line(session: Path) -> None:
    with opened(session / "meta.json", os.O_WRONLY | os.O_TRUNC) as descriptor:
        for line in ("{\n", '  "client": "x",\n', '  "scope": "private"\n', "}\n"):
            os.write(descriptor, line.encode())
        assert json.loads((session / "meta.json").read_text()) == {"client": "x", "scope": "private"}


# What is refused: (file, content, errno). Ends in a newline: by the write itself; else by close.

REFUSED = [
    ("state", "running\n", errno.EINVAL),
    ("state", "Active\n", errno.EINVAL),
    ("state", " active\n", errno.EINVAL),
    ("state", "active\n\n", errno.EINVAL),
    ("state", "active\nidle\n", errno.EINVAL),
    ("state", "\n", errno.EINVAL),
    ("state", "x" * 100_000 + "\n", errno.EINVAL),
    ("cwd", "relative\n", errno.EINVAL),
    ("cwd", "/a/\n", errno.EINVAL),
    ("cwd", "/a/../b\n", errno.EINVAL),
    ("cwd", "/a/./b\n", errno.EINVAL),
    ("cwd", "//a\n", errno.EINVAL),
    ("cwd", "/a\tb\n", errno.EINVAL),
    ("cwd", "/a\x7f\n", errno.EINVAL),
    ("cwd", "\n", errno.EINVAL),
    ("meta.json", "[1]\n", errno.EINVAL),
    ("meta.json", "1\n", errno.EINVAL),
    ("meta.json", '{"scope":"shared"}\n', errno.EINVAL),
    ("meta.json", '{"client":1}\n', errno.EINVAL),
    ("meta.json", '{"model":"a/b/c"}\n', errno.EINVAL),
    ("meta.json", '{"client":"a","client":"b"}\n', errno.EINVAL),
    ("meta.json", '{"x":"%s"}\n' % ("x" * KIB64), errno.EFBIG),
    ("index/current", "nobody\n", errno.ENOENT),
    ("index/current", "../x\n", errno.EINVAL),
    ("index/current", "index\n", errno.EINVAL),
    ("index/by-hash/h", "nobody\n", errno.ENOENT),
    ("index/by-hash/h", "a/b\n", errno.EINVAL),
    (f"index/by-uuid/{UUID}", "nobody\n", errno.ENOENT),
]


def target(session: Path, name: str) -> Path:
    return session.parent / name if name.startswith("index/") else session / name


@pytest.mark.parametrize(("name", "text", "number"), REFUSED)
def test_a_refused_value_fails_in_the_write_and_changes_nothing(
    session: Path, name: str, text: str, number: int
) -> None:
    path = target(session, name)
    before = path.read_bytes() if path.exists() else None
    with opened(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT) as descriptor, refused(number):
        os.write(descriptor, text.encode())
    assert (path.read_bytes() if path.exists() else None) == before
    assert entries(session) == 0


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [case for case in REFUSED if case[1] not in ("\n", "active\n\n") and len(case[1]) < KIB64],
)
def test_a_refused_value_without_its_newline_fails_in_close(session: Path, name: str, text: str, number: int) -> None:
    path = target(session, name)
    before = path.read_bytes() if path.exists() else None
    with refused(number):
        make(path, text.removesuffix("\n"))
    assert (path.read_bytes() if path.exists() else None) == before


@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
def test_a_shell_sees_echo_fail(session: Path, shell: str) -> None:
    result = subprocess.run([shell, "-c", f"echo running > {session}/state"], capture_output=True, check=False)
    assert result.returncode != 0
    assert (session / "state").read_text() == "idle\n"
    subprocess.run([shell, "-c", f"echo active > {session}/state"], check=True)
    assert (session / "state").read_text() == "active\n"


@pytest.mark.parametrize("size", [KIB64 - 1, KIB64])
def test_meta_json_takes_64_kib(session: Path, size: int) -> None:
    text = '{"x":"%s"}' % ("x" * (size - len('{"x":""}')))
    put(session / "meta.json", f"{text}\n")
    assert (session / "meta.json").read_text() == f"{text}\n"


@pytest.mark.parametrize("opening", ['{"a":', "["])
def test_meta_json_of_any_depth_is_judged(session: Path, opening: str) -> None:
    with refused(errno.EINVAL):
        put(session / "meta.json", opening * 5000 + "\n")
    assert entries(session) == 0


def test_a_second_value_is_refused(session: Path) -> None:
    with opened(session / "state", os.O_WRONLY) as descriptor:
        os.write(descriptor, b"active\n")
        with refused(errno.EINVAL):
            os.write(descriptor, b"done\n")
    assert (session / "state").read_text() == "active\n"


def test_truncating_begins_a_new_value(session: Path) -> None:
    with opened(session / "state", os.O_WRONLY) as descriptor:
        os.write(descriptor, b"active\n")
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, b"done\n")
    assert (session / "state").read_text() == "done\n"
    assert entries(session) == 2


@pytest.mark.parametrize("offset", [1, 4096])
@pytest.mark.parametrize("name", ["state", "cwd", "meta.json"])
def test_a_gap_is_refused(session: Path, name: str, offset: int) -> None:
    with opened(session / name, os.O_WRONLY) as descriptor, refused(errno.EINVAL):
        os.pwrite(descriptor, b"active\n", offset)


# Truncation.


@pytest.mark.parametrize("name", ["state", "cwd", "meta.json", "index/current", "AGENTS.md"])
@pytest.mark.parametrize("how", ["truncate", "ftruncate", "O_TRUNC", "O_CREAT|O_TRUNC"])
def test_truncation_alone_changes_nothing(session: Path, name: str, how: str) -> None:
    path = target(session, name)
    if name == "AGENTS.md":
        path.write_text("be kind\n")
    before = path.read_bytes(), path.stat().st_mtime_ns
    if how == "truncate":
        os.truncate(path, 0)
    elif how == "ftruncate":
        with opened(path, os.O_RDWR) as descriptor:
            os.ftruncate(descriptor, 0)
            assert (path.read_bytes(), path.stat().st_size) == (before[0], len(before[0]))
            os.close(os.dup(descriptor))
    else:
        with opened(path, os.O_WRONLY | os.O_TRUNC | (os.O_CREAT if "CREAT" in how else 0)) as descriptor:
            assert (path.read_bytes(), path.stat().st_size) == (before[0], len(before[0]))
            os.close(os.dup(descriptor))
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_readers_see_the_old_value_until_the_new_one_is_whole(session: Path) -> None:
    path = session / "cwd"
    path.write_text("/old\n")
    with opened(path, os.O_RDONLY) as before, opened(path, os.O_WRONLY | os.O_TRUNC) as writer:
        assert os.read(before, 100) == b"/old\n"
        for piece in (b"/a/new", b"/one", b"\n"):
            assert path.read_bytes() == b"/old\n"
            assert path.stat().st_size == os.stat(before).st_size == len(b"/old\n")
            os.write(writer, piece)
        assert os.pread(before, 100, 0) == path.read_bytes() == b"/a/new/one\n"
        assert path.stat().st_size == os.stat(before).st_size == len(b"/a/new/one\n")


@pytest.mark.parametrize("name", ["state", "cwd", "meta.json", "index/current"])
def test_a_value_cannot_be_taken_away(session: Path, name: str) -> None:
    path = target(session, name)
    content = path.read_bytes()
    changes: list[Callable[[], object]] = [
        lambda: os.unlink(path),
        lambda: os.rename(path, f"{path}~"),
        lambda: os.link(path, path.parent / "other"),
        lambda: os.chmod(path, 0o644),
    ]
    for change in changes:
        with refused(errno.EPERM):
            change()
    assert path.read_bytes() == content


# AGENTS.md and SKILLS.md.


@pytest.mark.parametrize("name", ["AGENTS.md", "SKILLS.md"])
def test_a_snapshot_takes_effect_at_flush(session: Path, name: str) -> None:
    path = session / name
    path.write_text("old\n")
    with opened(path, os.O_WRONLY | os.O_TRUNC) as descriptor:
        os.write(descriptor, b"new, ")
        os.write(descriptor, b"longer\n")
        assert path.read_text() == "old\n"
        os.fsync(descriptor)
        assert path.read_text() == "new, longer\n"
    assert entries(session) == 0


@pytest.mark.parametrize("name", ["AGENTS.md", "SKILLS.md"])
def test_a_snapshot_is_made_replaced_and_removed(session: Path, name: str) -> None:
    path = session / name
    assert not path.exists()
    path.touch()
    assert path.read_text() == ""
    path.write_text("one\n")
    with path.open("a") as file:
        file.write("two\n")
    assert path.read_text() == "one\ntwo\n"
    path.unlink()
    assert not path.exists()
    assert name not in os.listdir(session)


def test_a_shell_redirection_never_shows_a_snapshot_empty(session: Path) -> None:
    path = session / "AGENTS.md"
    path.write_text("old\n")
    subprocess.run(["sh", "-c", f"(cat {path}; echo new) > {session}/SKILLS.md"], check=True)
    assert (session / "SKILLS.md").read_text() == "old\nnew\n"
    subprocess.run(["sh", "-c", f"exec > {path}; cat {path} >&2"], check=True, stderr=subprocess.DEVNULL)
    assert path.read_text() == "old\n"


def test_a_snapshot_has_at_most_1_mib_and_is_utf_8(session: Path) -> None:
    path = session / "AGENTS.md"
    path.write_bytes(b"x" * (1 << 20))
    with refused(errno.EFBIG):
        path.write_bytes(b"y" * ((1 << 20) + 1))
    with refused(errno.EFBIG):
        os.truncate(path, 1 << 40)
    with refused(errno.EINVAL):
        path.write_bytes(b"\xff")
    assert path.read_bytes() == b"x" * (1 << 20)


def test_a_snapshot_whose_writer_ran_out_of_memory_replaces_nothing(session: Path) -> None:
    path = session / "AGENTS.md"
    path.write_text("old\n")
    (session / ".filler").write_bytes(b"x" * (USER_LIMIT - (512 << 10)))
    with opened(path, os.O_WRONLY | os.O_TRUNC) as descriptor:
        os.write(descriptor, b"y" * (400 << 10))
        with refused(errno.ENOSPC):
            os.write(descriptor, b"y" * (400 << 10))
    (session / ".filler").unlink()
    assert path.read_text() == "old\n"


def test_the_same_snapshot_is_no_change(session: Path) -> None:
    path = session / "AGENTS.md"
    path.write_text("same\n")
    before = path.stat().st_mtime_ns
    path.write_text("same\n")
    assert path.stat().st_mtime_ns == before


def test_a_refused_new_snapshot_leaves_none(session: Path) -> None:
    with refused(errno.EINVAL):
        (session / "AGENTS.md").write_bytes(b"\xff")
    assert not (session / "AGENTS.md").exists()


# index/.


def test_current_selects_an_existing_session(ctx: Path) -> None:
    first, second = (new_session(ctx, agent="index-test") for _ in range(2))
    current = first.parent / "index/current"
    assert current.read_text() == f"{first.name}\n"
    current.write_text(second.name)
    assert current.read_text() == f"{second.name}\n"
    before = current.stat().st_mtime_ns
    current.write_text(f"{second.name}\n")
    assert current.stat().st_mtime_ns == before


def test_current_is_absent_while_there_is_no_session(ctx: Path) -> None:
    current = agent_directory(ctx, agent="empty") / "session/index/current"
    assert not current.exists()
    with refused(errno.ENOENT):
        make(current, "nobody\n")
    assert not current.exists()
    assert "current" not in os.listdir(current.parent)


@pytest.mark.parametrize("key", ["by-hash/abc123", "by-hash/20260101", f"by-uuid/{UUID}"])
def test_a_key_is_made_replaced_and_removed(ctx: Path, key: str) -> None:
    first, second = new_session(ctx), new_session(ctx)
    path = first.parent / "index" / key
    make(path, f"{first.name}\n")
    assert path.read_text() == f"{first.name}\n"
    assert path.name in os.listdir(path.parent)
    before = path.stat().st_mtime_ns
    put(path, first.name)
    assert path.stat().st_mtime_ns == before
    put(path, second.name)
    assert (path.read_text(), path.stat().st_mtime_ns > before) == (f"{second.name}\n", True)
    path.unlink()
    assert not path.exists()
    assert path.name not in os.listdir(path.parent)


def test_a_key_that_was_never_written_is_gone_when_it_is_closed(session: Path) -> None:
    path = session.parent / "index/by-hash/never"
    with opened(path, os.O_WRONLY | os.O_CREAT):
        assert path.stat().st_size == 0
        assert path.read_bytes() == b""
    assert not path.exists()


# Derived and archived files.

DERIVED = ["latest.md", "created_at", "updated_at", "index/list", "index/by-cwd/*"]
WRITING = [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC, os.O_RDONLY | os.O_TRUNC]


def derived(session: Path, name: str) -> Path:
    path = target(session, name)
    if path.name == "*":
        (session / "cwd").write_text(f"/{session.name}\n")
        return next(each for each in path.parent.iterdir() if each.read_text() == f"{session.name}\n")
    return path


@pytest.mark.parametrize("person", [ROOT, ALICE])
@pytest.mark.parametrize("name", DERIVED)
def test_a_derived_file_cannot_be_opened_for_writing(ctx: Path, person: Person, name: str) -> None:
    session = new_session(ctx, person)
    path = person.does(derived, session, name)
    content = person.does(path.read_bytes)
    for writer in (ROOT, person):
        for flags in WRITING:
            assert writer.outcome(os.open, path, flags) == "EACCES"
        assert writer.outcome(os.open, path, os.O_WRONLY | os.O_CREAT) == "EACCES"
        assert writer.outcome(os.truncate, path, 0) == "EACCES"
        assert writer.outcome(os.unlink, path) == "EPERM"
    assert person.does(path.read_bytes) == content


def archived(session: Path) -> Path:
    directory = session.parents[3] / "archived_sessions" / session.parents[1].name
    directory.mkdir(exist_ok=True)
    new_session(session.parents[5], agent=session.parents[1].name)
    (session.parent / "index/current").write_text(f"{next_other(session)}\n")
    session.rename(directory / session.name)
    return directory / session.name


def next_other(session: Path) -> str:
    return next(name for name in os.listdir(session.parent) if name not in (session.name, "index"))


ALL_FILES = (*SESSION_FILES, "AGENTS.md", "SKILLS.md")


def test_archived_files_are_read_only(ctx: Path) -> None:
    session = new_session(ctx)
    for name in ("AGENTS.md", "SKILLS.md"):
        (session / name).write_text("text\n")
    where = archived(session)
    for name in ALL_FILES:
        for flags in WRITING:
            with refused(errno.EROFS):
                os.open(where / name, flags)
        for change in (lambda path: os.truncate(path, 0), os.unlink, lambda path: os.rename(path, f"{path}~")):
            with refused(errno.EROFS):
                change(where / name)
    with refused(errno.EROFS):
        os.open(where / "temporary", os.O_WRONLY | os.O_CREAT)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("messages.jsonl", message()),
        ("events.jsonl", b'{"type":"cwd","cwd":"/x"}\n'),
        ("state", b"done\n"),
        ("cwd", b"/x\n"),
        ("meta.json", f"{META}\n".encode()),
    ],
)
def test_a_handle_from_before_the_archiving_answers_erofs(ctx: Path, name: str, data: bytes) -> None:
    session = new_session(ctx)
    with opened(session / name, os.O_WRONLY | os.O_APPEND) as descriptor:
        where = archived(session)
        content = (where / name).read_bytes()
        with refused(errno.EROFS):
            os.write(descriptor, data)
    assert (where / name).read_bytes() == content


def test_a_snapshot_handle_from_before_the_archiving_answers_erofs(ctx: Path) -> None:
    session = new_session(ctx)
    (session / "AGENTS.md").write_text("old\n")
    descriptor = os.open(session / "AGENTS.md", os.O_WRONLY)
    where = archived(session)
    with refused(errno.EROFS):
        os.write(descriptor, b"new\n")
        os.fsync(descriptor)
    with refused(errno.EROFS):
        os.close(descriptor)
    assert (where / "AGENTS.md").read_text() == "old\n"


def test_root_of_a_user_namespace_gets_the_same_refusals(ctx: Path) -> None:
    session = new_session(ctx, ALICE)
    root = Person(ALICE.uid, ALICE.gid, maps_to_root=True)
    with_line = ("O_TRUNC", os.O_WRONLY | os.O_TRUNC)
    root.does(write_once, session / "messages.jsonl", message())
    assert root.outcome(os.open, session / "messages.jsonl", with_line[1]) == "EPERM"
    assert root.outcome(write_once, session / "messages.jsonl", b"garbage\n") == "EINVAL"
    assert root.outcome(write_once, session / "state", b"running\n") == "EINVAL"
    assert root.outcome(os.open, session / "latest.md", os.O_WRONLY) == "EACCES"
    assert root.outcome(os.unlink, session / "messages.jsonl") == "EPERM"
    other = new_session(ctx, Person(4242, 4242))
    assert root.outcome(os.listdir, other) == "EACCES"
