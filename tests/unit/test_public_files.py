"""Files that all may read, where others may make files too: nobody can have them written somewhere else (spec 4.6)."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxfs.public_files import write_public


def test_it_replaces_a_file_and_all_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        for data in (b"old and long", b"new"):
            write_public(tmp_path / "file", data)
            assert (tmp_path / "file").read_bytes() == data
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
    assert os.listdir(tmp_path) == ["file"]


def written_under(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The name that a file has while it is written."""
    names: list[Path] = []
    replace = Path.replace

    def noted(new: Path, target: Path) -> Path:
        names.append(new)
        return replace(new, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", noted)
        write_public(path, b"data")
    [name] = names
    return name


def test_nobody_knows_the_name_it_is_written_under(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({written_under(tmp_path / "file", monkeypatch) for _ in range(8)}) == 8


@pytest.mark.parametrize(
    "plant",
    [
        os.mkfifo,
        os.mkdir,
        lambda path: path.write_text("mine"),
        lambda path: path.symlink_to("victim"),
        lambda path: path.symlink_to("nowhere"),
    ],
    ids=["fifo", "directory", "file", "link", "dangling link"],
)
def test_what_is_at_that_name_all_the_same_is_neither_written_through_nor_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Path], object]
) -> None:
    (tmp_path / "victim").write_text("mine")
    monkeypatch.setattr(os, "urandom", bytes)
    planted = written_under(tmp_path / "file", monkeypatch)
    plant(planted)
    before = planted.lstat()
    with pytest.raises(FileExistsError):
        write_public(tmp_path / "file", b"other")
    assert (planted.lstat().st_ino, planted.lstat().st_size) == (before.st_ino, before.st_size)
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / "file").read_bytes() == b"data"
    assert not (tmp_path / "nowhere").exists()
