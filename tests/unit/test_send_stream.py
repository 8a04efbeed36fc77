"""What a btrfs send stream says has changed, command by command (notes 2.10)."""

import struct

import pytest

from backend.checkpoints.errors import InternalError
from backend.checkpoints.snapshots.send_stream import changes
from backend.checkpoints.wire import ChangeType, DiffEntry

MKFILE, MKDIR, SYMLINK, RENAME, LINK, UNLINK, RMDIR = 3, 4, 8, 9, 10, 11, 12
WRITE, TRUNCATE, CHMOD, CHOWN, UTIMES, END, EXTENT = 15, 17, 18, 19, 20, 21, 22
PATH, TO, OF = 15, 16, 17

ADDED, MODIFIED, DELETED, RENAMED = ChangeType.Added, ChangeType.Modified, ChangeType.Deleted, ChangeType.Renamed

Step = tuple[int, str] | tuple[int, str, str]


def stream(*steps: Step) -> bytes:
    return b"btrfs-stream\0\1\0\0\0" + b"".join(map(command, (*steps, (END, ""))))


def command(step: Step) -> bytes:
    kind, path, *other = step
    payload = attribute(5, b"\0\0\0\0\0\0\0\0") + attribute(PATH, path.encode("utf-8", "surrogateescape"))
    payload += b"".join(attribute(OF if kind == LINK else TO, each.encode()) for each in other)
    return struct.pack("<IHI", len(payload), kind, 0) + payload


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("<HH", kind, len(value)) + value


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([], []),
        ([(MKFILE, "o257-7-0"), (RENAME, "o257-7-0", "new"), (EXTENT, "new")], [("new", ADDED, None)]),
        ([(MKDIR, "o257-7-0"), (RENAME, "o257-7-0", "d")], [("d", ADDED, "directory")]),
        ([(SYMLINK, "o257-7-0"), (RENAME, "o257-7-0", "l")], [("l", ADDED, "symlink")]),
        ([(EXTENT, "f"), (TRUNCATE, "f"), (UTIMES, "f")], [("f", MODIFIED, None)]),
        ([(CHMOD, "f"), (CHOWN, "f"), (UTIMES, "")], []),
        ([(UNLINK, "f"), (RMDIR, "d")], [("f", DELETED, None), ("d", DELETED, "directory")]),
        ([(LINK, "new", "old"), (UNLINK, "old")], [("new", RENAMED, "old → new")]),
        ([(LINK, "new", "old")], [("new", ADDED, "hardlink")]),
        (
            [(LINK, "a", "old"), (LINK, "b", "old"), (UNLINK, "old")],
            [("a", RENAMED, "old → a"), ("b", ADDED, "hardlink")],
        ),
        ([(RENAME, "d", "e"), (EXTENT, "e/f")], [("e", RENAMED, "d → e"), ("e/f", MODIFIED, None)]),
        ([(RENAME, "d", "e"), (UNLINK, "e/f")], [("e", RENAMED, "d → e"), ("d/f", DELETED, None)]),
        ([(RENAME, "d", "e"), (RENAME, "e", "d")], []),
        (
            [(RENAME, "a", "o257-7-0"), (RENAME, "b", "a"), (RENAME, "o257-7-0", "b")],
            [("a", RENAMED, "b → a"), ("b", RENAMED, "a → b")],
        ),
        (
            [(RENAME, "d", "o258-7-0"), (UNLINK, "o258-7-0/f"), (RMDIR, "o258-7-0")],
            [("d/f", DELETED, None), ("d", DELETED, "directory")],
        ),
        ([(UNLINK, "f"), (MKFILE, "o259-8-0"), (RENAME, "o259-8-0", "f")], [("f", ADDED, None)]),
        (
            [(MKDIR, "o1-1-0"), (MKFILE, "o2-1-0"), (RENAME, "o2-1-0", "o1-1-0/f"), (RENAME, "o1-1-0", "d")],
            [("d", ADDED, "directory"), ("d/f", ADDED, None)],
        ),
        ([(MKFILE, "with space\n工"), (MKFILE, "\udcff")], [("with space\n工", ADDED, None), ("\\xff", ADDED, None)]),
    ],
)
def test_a_stream(steps: list[Step], found: list[tuple[str, ChangeType, str | None]]) -> None:
    assert changes(stream(*steps)) == [DiffEntry(*each) for each in found]


@pytest.mark.parametrize("data", [b"", b"btrfs-strea", stream((MKFILE, "f"))[:-4], stream((MKFILE, "f"))[:25]])
def test_what_is_no_stream(data: bytes) -> None:
    with pytest.raises(InternalError):
        changes(data)


def test_deep_paths() -> None:
    deep = "/".join("d" * 2000)
    assert changes(stream((RENAME, deep, "new"), (EXTENT, "new")))[0].detail == f"{deep} → new"


def test_many_new_files_take_no_time_each_for_all_others() -> None:
    count = 20_000
    steps: list[Step] = []
    for number in range(count):
        steps += [(MKFILE, f"o{number}-1-0"), (RENAME, f"o{number}-1-0", f"d/{number}")]
    assert len(changes(stream(*steps))) == count
