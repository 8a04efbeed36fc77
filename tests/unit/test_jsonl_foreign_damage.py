"""Foreign history that cannot be proven is served, and never touched (spec 1.5)."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.errors import UnprovableHistory
from tests.unit.jsonl_tree import (
    EVENTS,
    MESSAGES,
    SESSIONS,
    append,
    coder,
    event,
    opened,
    picture,
    read_everything,
    say,
    session,
    write_session,
)


def _tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _start_of_last(lines: bytes) -> int:
    return len(lines) - len(lines.splitlines(True)[-1])


def _swap(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    path.mkdir()


DAMAGE: list[tuple[str, str, Callable[[Path], object], str]] = [
    (
        "torn messages",
        "messages.jsonl",
        _tear,
        f"messages.jsonl line 3, byte {_start_of_last(MESSAGES)}: the newline at its end is missing",
    ),
    (
        "torn events",
        "events.jsonl",
        _tear,
        f"events.jsonl line 3, byte {_start_of_last(EVENTS)}: the newline at its end is missing",
    ),
    ("blank line", "events.jsonl", lambda p: p.write_bytes(b"\n" + EVENTS), "events.jsonl line 1, byte 0: it is blank"),
    (
        "only blanks",
        "events.jsonl",
        lambda p: p.write_bytes(EVENTS + b" \n"),
        f"events.jsonl line 4, byte {len(EVENTS)}: it is blank",
    ),
    (
        "not JSON",
        "messages.jsonl",
        lambda p: p.write_bytes(b"{\n" + MESSAGES),
        "line 1, byte 0: it is not one JSON object",
    ),
    ("an array", "messages.jsonl", lambda p: p.write_bytes(MESSAGES + b"[]\n"), "it is not one JSON object"),
    ("not UTF-8", "messages.jsonl", lambda p: p.write_bytes(b'{"a":"\xff"}\n' + MESSAGES), "it is not UTF-8"),
    (
        "too long",
        "messages.jsonl",
        lambda p: p.write_bytes(b'{"role":"user","content":"' + b"x" * (16 << 20) + b'"}\n' + MESSAGES),
        "messages.jsonl line 1, byte 0: it has more than 16 MiB",
    ),
    ("a directory", "messages.jsonl", _swap, "messages.jsonl: it is not a regular file"),
    ("another format", ".store/manifest.json", lambda p: p.write_bytes(b"{}"), ".store/manifest.json: "),
    (
        "two faults",
        "events.jsonl",
        lambda p: p.write_bytes(b"\n\n" + EVENTS),
        "line 1, byte 0: it is blank (and 1 more)",
    ),
]


def _link(path: Path) -> None:
    target = path.with_suffix(".target")
    path.rename(target)
    path.symlink_to(target)


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _store_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


DAMAGE += [
    ("a link", "messages.jsonl", _link, "messages.jsonl: it is not a regular file"),
    ("a FIFO", "events.jsonl", _fifo, "events.jsonl: it is not a regular file"),
    (".store is a link", ".store", _store_link, ".store: it is not a directory"),
]


@pytest.mark.parametrize("name, damage, words", [case[1:] for case in DAMAGE], ids=[case[0] for case in DAMAGE])
def test_unprovable_history_is_served_and_refuses_every_append(
    root: Path, name: str, damage: Callable[[Path], object], words: str
) -> None:
    damage(write_session(root) / name)
    before = picture(root)
    for _ in range(2):
        store = opened(root)
        row = session(store)
        assert row.fault and words in row.fault
        for lines in ([say("x")], [event('{"type":"state","from":"idle","state":"done"}')]):
            with pytest.raises(UnprovableHistory):
                append(store, row, *lines)
        with pytest.raises(UnprovableHistory):
            store.branch_session(row.id, 1, "child")
        read_everything(store)
        store.close()
    assert picture(root) == before


def test_lines_after_garbage_are_served(root: Path) -> None:
    first, *rest = MESSAGES.splitlines(True)
    content = first + b"garbage \xff\n" + b"".join(rest) + b'{"torn"'
    write_session(root, messages_jsonl=content)
    store = opened(root)
    row = session(store)
    assert store.read_stream(row.id, "messages", 0, 1 << 20) == content
    assert [each.raw + b"\n" for each in store.rows(row.id)][:3] == [first, *rest]
    assert row.fault and row.fault.startswith(f"messages.jsonl line 2, byte {len(first)}: ")
    store.close()


def test_a_line_of_16_mib_is_a_line(root: Path) -> None:
    line = b'{"role":"user","content":""}'
    long = line[:-2] + b"x" * ((16 << 20) - len(line)) + line[-2:]
    write_session(root, messages_jsonl=long + b"\n")
    store = opened(root)
    assert session(store).fault is None
    assert store.rows(session(store).id)[0].raw == long
    store.close()


def test_a_session_directory_that_is_a_link_is_no_session(root: Path) -> None:
    write_session(root)
    (root / SESSIONS / "linked").symlink_to("default")
    store = opened(root)
    assert [row.name for row in store.sessions(coder(store).id)] == ["default"]
    store.close()
