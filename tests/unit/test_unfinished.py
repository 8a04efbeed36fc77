"""A store and a copy that are made in one directory at the same time: one of the two is given up (spec 4.6)."""

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.errors import OpenError, StoreCorrupt
from backend.jsonl import opened
from backend.sqlite import opening
from backend.store import DiskStore
from backend.unfinished import INCOMPLETE
from ctxfs import backup, stores

DATABASE = "ctxfs.db"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target"
    path.mkdir(mode=0o750)
    return path


def names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def fill(staging: Path) -> None:
    (staging / "disk").mkdir()
    (staging / "disk/file").write_text("copied")
    (staging / DATABASE).write_text("copied")


def locked(directory: Path) -> None:
    with stores.locked(directory):
        pass


OPENING: dict[str, Callable[[Path], object]] = {
    "sqlite": lambda path: stores.open_store(path, "sqlite"),
    "jsonl": lambda path: stores.open_store(path, "jsonl"),
    "detect": stores.detect,
    "choose": lambda path: stores.choose(path, "jsonl"),
    "locked": locked,
}


@pytest.mark.parametrize("what", OPENING)
def test_no_store_is_opened_where_a_copy_is_made(target: Path, what: str) -> None:
    with backup.filling(target) as staging:
        fill(staging)
        before = names(target)
        with pytest.raises(StoreCorrupt, match="not finished"):
            OPENING[what](target)
        assert names(target) == before
    assert names(target) == [DATABASE, "disk", "disk/file"]


@pytest.mark.parametrize("form", stores.FORMATS)
def test_a_store_that_began_to_open_before_the_copy_is_given_up(
    target: Path, form: stores.Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = {"sqlite": opening, "jsonl": opened}[form]
    lock = module._lock

    def lock_late(path: Path) -> object:
        (target / INCOMPLETE).mkdir()
        return lock(path)

    monkeypatch.setattr(module, "_lock", lock_late)
    with pytest.raises(StoreCorrupt, match="not finished"):
        stores.open_store(target, form)
    assert not (target / DATABASE).exists()
    assert not (target / ".ctxfs/format").exists()


@pytest.mark.parametrize("form", stores.FORMATS)
def test_a_copy_that_began_before_a_store_was_opened_is_given_up(
    target: Path, form: stores.Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_used, made = backup._refuse_used, list[DiskStore]()

    def open_late(path: Path) -> None:
        refuse_used(path)
        made.append(stores.open_store(path, form))

    monkeypatch.setattr(backup, "_refuse_used", open_late)
    with pytest.raises(backup.BackupRefused, match="not empty"), backup.filling(target):
        pytest.fail("the directory is not the copy's alone")
    [store] = made
    with contextlib.closing(store):
        assert store.integrity() == []
    assert stores.detect(target) == form
    assert not (target / INCOMPLETE).exists()


def not_told(*_: object) -> None:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


@pytest.mark.parametrize("flags", ["known", "unknown"])
@pytest.mark.parametrize("name", [DATABASE, "disk"])
def test_what_others_made_meanwhile_is_neither_replaced_nor_removed(
    target: Path, name: str, flags: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if flags == "unknown":
        monkeypatch.setattr(backup, "rename", not_told)
    with pytest.raises(backup.BackupRefused, match="somebody else"), backup.filling(target) as staging:
        fill(staging)
        (target / name).write_text("theirs")
        (target / "more").write_text("theirs")
    assert {path.name: path.read_text() for path in target.iterdir()} == {name: "theirs", "more": "theirs"}
    assert stat.S_IMODE(target.stat().st_mode) == 0o750


def test_a_file_system_that_cannot_be_told_not_to_replace_gets_the_copy(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "rename", not_told)
    with backup.filling(target) as staging:
        fill(staging)
    assert names(target) == [DATABASE, "disk", "disk/file"]


@pytest.mark.parametrize("theirs", [[], ["more"]], ids=["alone", "not alone"])
def test_a_target_that_was_made_goes_if_nothing_else_is_in_it(tmp_path: Path, theirs: list[str]) -> None:
    target = tmp_path / "made"
    with pytest.raises(OpenError), backup.filling(target) as staging:
        fill(staging)
        for name in theirs:
            (target / name).write_text("theirs")
        raise OpenError("the copy is no good")
    assert (names(target) if target.exists() else []) == theirs
    assert target.exists() == bool(theirs)
