"""Copies of a tree that its owner changes meanwhile: what was there at some time, or ``TreeChanged`` (spec 6.5)."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.checkpoints.snapshots.copy import copy_data
from backend.checkpoints.snapshots.copying import TreeCopy
from backend.checkpoints.snapshots.removing import remove_below
from backend.checkpoints.snapshots.walking import TreeChanged

SECRET = "secret"
ROUNDS = 60


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "hidden/below").mkdir(parents=True)
    for place in ("hidden/file", "hidden/below/file"):
        (tmp_path / place).write_text(SECRET)
    (tmp_path / "tree/directory/below").mkdir(parents=True)
    for place in ("tree/directory/file", "tree/directory/below/file", "tree/file"):
        (tmp_path / place).write_text("mine")
    (tmp_path / "tree/link").symlink_to(tmp_path / "hidden")
    (tmp_path / "tree/file link").symlink_to(tmp_path / "hidden/file")
    return tmp_path / "tree"


def swap_directory(tree: Path) -> None:
    (tree / "directory").rename(tree / "aside")
    (tree / "link").rename(tree / "directory")
    (tree / "directory").rename(tree / "link")
    (tree / "aside").rename(tree / "directory")


def swap_file(tree: Path) -> None:
    (tree / "file").rename(tree / "aside")
    (tree / "file link").rename(tree / "file")
    (tree / "file").rename(tree / "file link")
    (tree / "aside").rename(tree / "file")


def replace_link_by_a_file_with_attributes(tree: Path) -> None:
    """A symlink cannot have these."""
    os.setxattr(tree / "file", "user.note", b"x")
    swap_file(tree)


def replace_by_a_fifo(tree: Path) -> None:
    (tree / "file").unlink()
    os.mkfifo(tree / "file")
    (tree / "file").unlink()
    (tree / "file").write_text("mine")


def move_below(tree: Path) -> None:
    (tree / "directory/below").rename(tree / "moved")
    (tree / "moved").rename(tree / "directory/below")


def move_above(tree: Path) -> None:
    (tree / "directory/below").rename(tree.parent / "moved")
    (tree.parent / "moved").rename(tree / "directory/below")


def grow_and_shrink(tree: Path) -> None:
    with (tree / "file").open("r+b") as file:
        file.truncate(1 << 20)
        file.truncate(4)


CHANGES = [
    swap_directory,
    swap_file,
    replace_link_by_a_file_with_attributes,
    replace_by_a_fifo,
    move_below,
    move_above,
    grow_and_shrink,
]


@contextlib.contextmanager
def changing(tree: Path, change: Callable[[Path], None]) -> Iterator[None]:
    begun, stop = threading.Event(), threading.Event()

    def run() -> None:
        while not stop.is_set():
            change(tree)
            begun.set()

    changer = threading.Thread(target=run)
    changer.start()
    begun.wait()
    try:
        yield
    finally:
        stop.set()
        changer.join()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def copied(tree: Path, target: Path) -> bool:
    target.mkdir()
    with opened(tree) as source, opened(target) as into:
        try:
            TreeCopy(source, into, copy_data).run()
        except TreeChanged:
            return False
    return True


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_nothing_from_elsewhere_is_in_a_copy(tree: Path, change: Callable[[Path], None]) -> None:
    """Whether a copy succeeds or not; and one that does holds files that were there, perhaps as they were made."""
    with changing(tree, change):
        done = [copied(tree, tree.parent / f"copy{number}") for number in range(ROUNDS)]
    for number, is_done in enumerate(done):
        top = tree.parent / f"copy{number}"
        files = [path for path in top.rglob("*") if path.is_file() and not path.is_symlink()]
        contents = {path.read_bytes().rstrip(b"\0") for path in files if "link" not in path.relative_to(top).parts}
        assert SECRET.encode() not in contents
        assert contents <= {b"mine", b""} or not is_done
    assert copied(tree, tree.parent / "last")


@pytest.mark.parametrize("change", [swap_directory, swap_file, move_below, move_above], ids=lambda each: each.__name__)
def test_nothing_elsewhere_is_removed(tree: Path, change: Callable[[Path], None]) -> None:
    hidden = tree.parent / "hidden"

    def change_while_it_is_there(tree: Path) -> None:
        with contextlib.suppress(OSError):
            change(tree)

    with changing(tree, change_while_it_is_there), opened(tree) as root:
        for _ in range(ROUNDS):
            with contextlib.suppress(TreeChanged, OSError):
                remove_below(root)
    assert sorted(path.name for path in hidden.rglob("*")) == ["below", "file", "file"]


def test_a_file_that_is_emptied_between_two_looks_at_it_ends_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 9000)
    seek = os.lseek

    def emptied_meanwhile(descriptor: int, at: int, whence: int) -> int:
        found = seek(descriptor, at, whence)
        if whence == os.SEEK_DATA:
            os.truncate(file, 0)
        return found

    monkeypatch.setattr(os, "lseek", emptied_meanwhile)
    with file.open("rb") as source, (tmp_path / "copy").open("wb") as target:
        copy_data(source.fileno(), target.fileno(), 9000)
    assert (tmp_path / "copy").read_bytes() == bytes(9000)
