"""Spec 1.4, Values: what a write to a small file does, when, and what it refuses."""

import errno
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mount.acting import agent_directory, entries, new_session, opened, refused, target, write_once

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
    ("meta.json", "not JSON\n", errno.EINVAL),
    ("meta.json", "{bad\n", errno.EINVAL),
    ("meta.json", "{} {}\n", errno.EINVAL),
    ("meta.json", '{"x":NaN}\n', errno.EINVAL),
    ("meta.json", '{"x":"\n', errno.EINVAL),
    ("meta.json", '{"x":1.\n', errno.EINVAL),
    ("meta.json", '{"x":1e999}\n', errno.EINVAL),
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


@pytest.mark.parametrize(
    ("name", "bad", "good"), [("state", "running", "active"), ("meta.json", "{client:1}", '{"client":"x"}')]
)
@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
def test_a_shell_sees_echo_fail(session: Path, shell: str, name: str, bad: str, good: str) -> None:
    before = (session / name).read_text()
    result = subprocess.run([shell, "-c", f"echo '{bad}' > {session}/{name}"], capture_output=True, check=False)
    assert result.returncode != 0
    assert (session / name).read_text() == before
    subprocess.run([shell, "-c", f"echo '{good}' > {session}/{name}"], check=True)
    assert (session / name).read_text() == f"{good}\n"


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
