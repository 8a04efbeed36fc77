"""Spec 1.5, Unprovable history: what is malformed in a plain JSONL store is served, and nothing is added to it."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mount.acting import event, message, new_session, refused, write_once
from tests.mounting import RunningMount

A, B = message("a"), message("b")

DAMAGE: dict[str, bytes] = {
    "garbage in the middle": A + b"garbage\n" + B,
    "a blank line": A + b"\n" + B,
    "bytes that are not UTF-8": A + b'{"role":"\xff"}\n' + B,
    "another JSON value": A + b"[1]\n" + B,
    "no newline at the end": A + B[:-1],
    "half a line at the end": A + B[:10],
}


@pytest.fixture
def damaged(mount: RunningMount) -> Callable[[bytes], Path]:
    """Puts content into messages.jsonl behind the daemon's back; the session, mounted again."""
    mount.allow("history cannot be proven|session '")

    def damage(content: bytes) -> Path:
        session = new_session(mount.path)
        write_once(session / "messages.jsonl", A)
        assert mount.stop() == 0
        [file] = [path for path in mount.store.rglob("messages.jsonl") if path.parent.name == session.name]
        file.write_bytes(content)
        mount.start()
        return session

    return damage


@pytest.mark.store("jsonl")
@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
def test_it_is_served_as_it_is_and_every_append_is_eio(damaged: Callable[[bytes], Path], content: bytes) -> None:
    session = damaged(content)
    log = session / "messages.jsonl"
    before = {path.name: path.read_bytes() for path in session.iterdir() if path.is_file()}
    assert before["messages.jsonl"] == content
    assert log.stat().st_size == len(content)
    (session / "tmp").write_bytes(content + A)
    writes: list[Callable[[], object]] = [
        lambda: write_once(log, A),
        lambda: write_once(log, b"\n"),
        lambda: write_once(session / "events.jsonl", event()),
        lambda: write_once(session / "state", b"active\n"),
        lambda: write_once(session / "cwd", b"/x\n"),
        lambda: (session / "tmp").rename(log),
    ]
    for write in writes:
        with refused(errno.EIO):
            write()
    assert {path.name: path.read_bytes() for path in session.iterdir() if path.is_file()} == before


@pytest.mark.store("jsonl")
def test_another_session_is_not_concerned(damaged: Callable[[bytes], Path]) -> None:
    session = damaged(DAMAGE["garbage in the middle"])
    other = new_session(session.parents[5])
    write_once(other / "messages.jsonl", B)
    assert (other / "messages.jsonl").read_bytes() == B
    assert other.name in os.listdir(session.parent)
