"""Ordinary directories hold a bounded number of descriptors, and none for what is only known (spec 1.8)."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyfuse3 import RequestContext

from ctxfs.files.passthrough_tree import DIRECTORY_LIMIT
from tests.unit.passthrough_disks import CALLER, Disk, descriptors, error_of, forget_descriptors, run


def test_known_files_hold_no_descriptors(disk: Disk) -> None:
    (disk.path / "first").touch()
    disk.look_up(b"first")
    before = descriptors()
    for number in range(2000):
        (disk.path / str(number)).touch()
        run(disk.operations.getattr(disk.look_up(b"%d" % number), CALLER))
    assert descriptors() == before


def test_directories_hold_a_bounded_number(disk: Disk) -> None:
    before = descriptors()
    for number in range(DIRECTORY_LIMIT + 200):
        (disk.path / str(number)).mkdir()
        (disk.path / str(number) / "file").touch()
        disk.look_up(b"%d" % number, b"file")
    assert descriptors() - before <= DIRECTORY_LIMIT


def test_a_directory_whose_descriptor_was_given_up_is_found_again(disk: Disk) -> None:
    (disk.path / "first" / "sub").mkdir(parents=True)
    (disk.path / "first" / "sub" / "file").touch()
    inner = disk.look_up(b"first", b"sub")
    run(disk.operations.rename(disk.root, b"first", disk.root, b"renamed", 0, CALLER))
    forget_descriptors(disk)
    assert run(disk.operations.lookup(inner, b"file", CALLER)).st_nlink == 1


def test_a_nameless_file_holds_one_until_it_is_forgotten(disk: Disk) -> None:
    (disk.path / "file").touch()
    file = disk.look_up(b"file")
    before = descriptors()
    run(disk.operations.unlink(disk.root, b"file", CALLER))
    assert run(disk.operations.getattr(file, CALLER)).st_nlink == 0
    assert descriptors() == before + 1
    disk.forget(file)
    assert descriptors() == before
    assert error_of(disk.operations.getattr(file, CALLER)) == "ESTALE"


def test_a_file_that_lost_its_only_known_name_is_reached_and_found_by_another(disk: Disk) -> None:
    """The kernel may know one link of many, of a file that was made before the mount."""
    (disk.path / "one").touch()
    os.link(disk.path / "one", disk.path / "two")
    file = disk.look_up(b"one")
    before = descriptors()
    run(disk.operations.unlink(disk.root, b"one", CALLER))
    assert run(disk.operations.getattr(file, CALLER)).st_nlink == 1
    assert disk.look_up(b"two") == file
    assert descriptors() == before
    assert run(disk.operations.getattr(file, CALLER)).st_nlink == 1


@pytest.mark.parametrize("replace", ["rename", "rmdir"])
def test_a_nameless_directory_likewise(disk: Disk, replace: str) -> None:
    (disk.path / "gone").mkdir()
    (disk.path / "other").mkdir()
    gone = disk.look_up(b"gone")
    run(disk.operations.getattr(gone, CALLER))
    before = descriptors()
    if replace == "rmdir":
        run(disk.operations.rmdir(disk.root, b"gone", CALLER))
    else:
        run(disk.operations.rename(disk.root, b"other", disk.root, b"gone", 0, CALLER))
    assert run(disk.operations.getattr(gone, CALLER)).st_nlink == 0
    disk.forget(gone)
    assert descriptors() == before - 1


def test_failures_leave_no_descriptor_behind(disk: Disk) -> None:
    (disk.path / "full" / "sub").mkdir(parents=True)
    (disk.path / "file").touch()
    full, file = disk.look_up(b"full"), disk.look_up(b"file")
    run(disk.operations.getattr(full, CALLER))
    before = descriptors()
    answers = [
        error_of(disk.operations.rmdir(disk.root, b"full", CALLER)),
        error_of(disk.operations.unlink(disk.root, b"full", CALLER)),
        error_of(disk.operations.unlink(disk.root, b"missing", CALLER)),
        error_of(disk.operations.rename(disk.root, b"file", disk.root, b"full", 0, CALLER)),
        error_of(disk.operations.mkdir(disk.root, b"full", 0o755, CALLER)),
        error_of(disk.operations.create(disk.root, b"x" * 300, 0o644, os.O_RDWR, CALLER)),
        error_of(disk.operations.getxattr(file, b"user.missing", CALLER)),
        error_of(disk.operations.opendir(file, CALLER)),
        error_of(disk.operations.open(full, os.O_RDONLY, CALLER)),
    ]
    assert "ok" not in answers
    assert descriptors() == before


def test_a_tree_deeper_than_a_path_may_be_long(disk: Disk) -> None:
    inode, name = disk.root, b"d" * 200
    for _ in range(60):
        inode = run(disk.operations.mkdir(inode, name, 0o755, CALLER)).st_ino
    forget_descriptors(disk)
    assert run(disk.operations.mkdir(inode, b"at-the-bottom", 0o755, CALLER)).st_nlink == 2


def test_one_user_cannot_take_all_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path / "disk", "shared/team/data")
    monkeypatch.setattr("resource.getrlimit", lambda _: (8, 8))
    alice, bob, root = (cast(RequestContext, SimpleNamespace(uid=uid, gid=0, pid=0, umask=0)) for uid in (1, 2, 0))
    (disk.path / "file").touch(mode=0o666)
    inode = disk.look_up(b"file")
    operations = disk.operations
    files = [run(operations.open(inode, os.O_RDONLY, alice)).fh for _ in range(3)]
    directory = run(operations.opendir(disk.root, alice))
    for refused in (
        operations.open(inode, os.O_RDONLY, alice),
        operations.opendir(disk.root, alice),
        operations.create(disk.root, b"new", 0o600, os.O_WRONLY, alice),
    ):
        assert error_of(refused) == "EMFILE"
    assert not (disk.path / "new").exists()
    files += [run(operations.open(inode, os.O_RDONLY, caller)).fh for caller in (bob, root, root, root, root, root)]
    run(operations.releasedir(directory))
    files.append(run(operations.open(inode, os.O_RDONLY, alice)).fh)
    for fh in files:
        run(operations.release(fh))
    operations.close()
