"""Ordinary directories without a mount: roots, names, what a changed disk answers."""

import errno
import os
import stat
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyfuse3 import EntryAttributes, RequestContext, SetattrFields

from backend.system_calls import RENAME_EXCHANGE, rename
from ctxfs.files import passthrough_tree
from ctxfs.files.passthrough import DiskOperations
from ctxfs.files.passthrough_inodes import DISK_TAG
from tests.unit.passthrough_disks import CALLER, HOME, KEY, Disk, error_of, forget_descriptors, run

NOT_NAMES = (b"", b".", b"..", b"../x", b"a/b", b"/etc")


# Roots


def test_base_and_parents_are_private(disk: Disk, tmp_path: Path) -> None:
    parents = [tmp_path / "disk", *(tmp_path / "disk" / part for part in ("home", f"{HOME}/agent/coder"))]
    assert {stat.S_IMODE(parent.stat().st_mode) for parent in parents} == {0o700}


def test_base_is_made_private_again(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o755)
    DiskOperations(tmp_path / "disk", as_root=False, invalidate=lambda inode: None).close()
    assert stat.S_IMODE((tmp_path / "disk").stat().st_mode) == 0o700


def test_root_has_the_mode_it_was_made_with(disk: Disk) -> None:
    disk.operations.make_root("shared/team/data", -1, -1, 0o2770)
    assert stat.S_IMODE((disk.path.parents[4] / "shared/team/data").stat().st_mode) == 0o2770


def test_making_a_root_again_changes_nothing(disk: Disk) -> None:
    (disk.path / "file").write_bytes(b"kept")
    assert disk.operations.make_root(KEY, -1, -1, 0o700) == disk.root
    assert stat.S_IMODE(disk.path.stat().st_mode) == 0o755
    assert (disk.path / "file").read_bytes() == b"kept"


def test_a_root_that_was_half_made_is_made(disk: Disk) -> None:
    (disk.path.parent / ".cache").mkdir(mode=0o700)
    disk.operations.make_root(f"{HOME}/agent/coder/cache", -1, -1, 0o750)
    assert stat.S_IMODE((disk.path.parent / "cache").stat().st_mode) == 0o750
    assert sorted(os.listdir(disk.path.parent)) == ["cache", "data"]


def test_missing_root(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.operations.root_inode(f"{HOME}/agent/nobody/data")


@pytest.mark.parametrize("key", ["", "..", "home/../home", "home//1000", "/etc", "home/"])
def test_key_that_is_no_path_below(disk: Disk, key: str) -> None:
    with pytest.raises(OSError) as caught:
        disk.operations.make_root(key, -1, -1, 0o700)
    assert caught.value.errno == errno.EINVAL


def test_full_root_is_not_removed(disk: Disk) -> None:
    (disk.path / "file").touch()
    assert not disk.operations.root_is_empty(KEY)
    with pytest.raises(OSError) as caught:
        disk.operations.remove_root(KEY)
    assert caught.value.errno == errno.ENOTEMPTY
    assert disk.operations.root_inode(KEY) == disk.root


@pytest.mark.parametrize("key", [KEY, f"{HOME}/agent/second/log", "shared/team/data", "data"])
def test_removed_root_takes_the_empty_directories_above_along_but_no_home(disk: Disk, tmp_path: Path, key: str) -> None:
    if key != KEY:
        disk.operations.make_root(key, -1, -1, 0o700)
    for each in {key, KEY}:
        assert disk.operations.root_is_empty(each)
        disk.operations.remove_root(each)
    base = tmp_path / "disk"
    assert {str(path.relative_to(base)) for path in base.rglob("*")} == {"home", f"{HOME}"}


def test_removed_root_answers_who_still_uses_it(disk: Disk) -> None:
    disk.look_up()
    disk.operations.look_up_root(KEY)
    disk.operations.remove_root(KEY)
    assert run(disk.operations.getattr(disk.root, CALLER)).st_nlink == 0
    assert error_of(disk.operations.mkdir(disk.root, b"new", 0o755, CALLER)) == "ENOENT"


def test_root_made_again_is_new(disk: Disk) -> None:
    disk.operations.look_up_root(KEY)
    disk.operations.remove_root(KEY)
    assert disk.operations.make_root(KEY, -1, -1, 0o755) != disk.root


# Names


@pytest.mark.parametrize("name", NOT_NAMES)
def test_only_names_lead_anywhere(disk: Disk, name: bytes) -> None:
    operations, root = disk.operations, disk.root
    (disk.path / "file").touch()
    file = disk.look_up(b"file")
    answers = [
        error_of(operations.lookup(root, name, CALLER)),
        error_of(operations.mknod(root, name, stat.S_IFREG | 0o644, 0, CALLER)),
        error_of(operations.mkdir(root, name, 0o755, CALLER)),
        error_of(operations.symlink(root, name, b"target", CALLER)),
        error_of(operations.create(root, name, 0o644, os.O_RDWR, CALLER)),
        error_of(operations.unlink(root, name, CALLER)),
        error_of(operations.rmdir(root, name, CALLER)),
        error_of(operations.link(file, root, name, CALLER)),
        error_of(operations.rename(root, name, root, b"new", 0, CALLER)),
        error_of(operations.rename(root, b"file", root, name, 0, CALLER)),
    ]
    assert set(answers) == {"EINVAL"}


def test_inode_numbers_survive_a_forget(disk: Disk) -> None:
    (disk.path / "file").touch()
    if (disk.path / "file").stat().st_dev != disk.path.stat().st_dev:
        pytest.skip("an overlay: its files are on another device than their directories")
    before = disk.look_up(b"file")
    disk.forget(before)
    assert disk.look_up(b"file") == before == DISK_TAG | (disk.path / "file").stat().st_ino


def test_a_name_that_came_without_the_kernel_s_knowledge_is_looked_up_again(disk: Disk) -> None:
    (disk.path / "file").write_bytes(b"not checked")
    assert error_of(disk.operations.create(disk.root, b"file", 0o644, os.O_RDWR | os.O_CREAT, CALLER)) == "ESTALE"
    assert error_of(disk.operations.create(disk.root, b"file", 0o644, os.O_RDWR | os.O_EXCL, CALLER)) == "EEXIST"


def test_forgetting_the_unknown_is_nothing(disk: Disk) -> None:
    disk.forget(DISK_TAG | 12345)


# A disk that is changed behind our back


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What must never be reached: the same names as in the root."""
    top = tmp_path / "outside"
    (top / "sub").mkdir(parents=True)
    (top / "file").write_bytes(b"secret")
    (top / "sub" / "file").write_bytes(b"secret")
    (top / "file").chmod(0o600)
    return top


def tree_of(top: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_mode, path.lstat().st_mtime_ns) for path in top.rglob("*")}


def change_everything(operations: DiskOperations, inode: int) -> list[str]:
    """What every handler answers that acts on a file or directory by its inode."""
    attributes, fields = (
        EntryAttributes(),
        SimpleNamespace(
            update_uid=False, update_gid=False, update_mode=True, update_size=True, update_atime=True, update_mtime=True
        ),
    )
    attributes.st_mode = stat.S_IFREG | 0o666
    return [
        error_of(operations.getattr(inode, CALLER)),
        error_of(operations.setattr(inode, attributes, cast(SetattrFields, fields), None, CALLER)),
        error_of(operations.setxattr(inode, b"user.note", b"value", CALLER)),
        error_of(operations.getxattr(inode, b"user.note", CALLER)),
        error_of(operations.listxattr(inode, CALLER)),
        error_of(operations.removexattr(inode, b"user.note", CALLER)),
        error_of(operations.readlink(inode, CALLER)),
    ]


def test_a_file_replaced_by_a_link_is_stale(disk: Disk, outside: Path) -> None:
    (disk.path / "file").write_bytes(b"mine")
    file = disk.look_up(b"file")
    (disk.path / "file").rename(disk.path.parent / "away")
    (disk.path / "file").symlink_to(outside / "file")
    before = tree_of(outside)
    answers = change_everything(disk.operations, file)
    answers += [error_of(disk.operations.open(file, flags, CALLER)) for flags in (os.O_RDONLY, os.O_RDWR | os.O_TRUNC)]
    answers += [error_of(disk.operations.link(file, disk.root, b"linked", CALLER))]
    assert set(answers) == {"ESTALE"}
    assert tree_of(outside) == before


@pytest.mark.parametrize("depth", [1, 2])
def test_a_directory_replaced_by_a_link_is_stale(disk: Disk, outside: Path, depth: int) -> None:
    names = [b"sub", b"sub"][:depth]
    (disk.path / "sub" / "sub").mkdir(parents=True)
    directory = disk.look_up(*names)
    (disk.path / "sub").rename(disk.path.parent / "away")
    (disk.path / "sub").symlink_to(outside)
    forget_descriptors(disk)
    before = tree_of(outside)
    answers = change_everything(disk.operations, directory)
    answers += [
        error_of(disk.operations.lookup(directory, b"file", CALLER)),
        error_of(disk.operations.create(directory, b"new", 0o644, os.O_RDWR, CALLER)),
        error_of(disk.operations.mkdir(directory, b"new", 0o755, CALLER)),
        error_of(disk.operations.unlink(directory, b"file", CALLER)),
        error_of(disk.operations.rename(directory, b"file", disk.root, b"stolen", 0, CALLER)),
        error_of(disk.operations.opendir(directory, CALLER)),
    ]
    assert set(answers) == {"ESTALE"}
    assert tree_of(outside) == before


def test_a_link_above_a_root_leads_nowhere(tmp_path: Path, outside: Path) -> None:
    (outside / "1000/agent/coder/data").mkdir(parents=True)
    base = tmp_path / "disk"
    base.mkdir()
    (base / "home").symlink_to(outside)
    operations = DiskOperations(base, as_root=False, invalidate=lambda inode: None)
    for use in (operations.root_inode, operations.root_is_empty, operations.remove_root):
        with pytest.raises(OSError) as caught:
            use(KEY)
        assert caught.value.errno == errno.ESTALE
    with pytest.raises(OSError):
        operations.make_root("home/1001/agent/x/data", -1, -1, 0o700)
    operations.close()
    assert sorted(os.listdir(outside)) == ["1000", "file", "sub"]


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_root_that_is_no_directory_is_refused(disk: Disk, outside: Path, kind: str) -> None:
    name = disk.path.parent / "cache"
    name.symlink_to(outside) if kind == "link" else name.touch()
    with pytest.raises(NotADirectoryError):
        disk.operations.root_inode(f"{HOME}/agent/coder/cache")


def test_base_may_not_be_a_link(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "disk").symlink_to(outside)
    with pytest.raises(OSError):
        DiskOperations(tmp_path / "disk", as_root=False, invalidate=lambda inode: None)


ACTIONS: dict[str, Callable[[DiskOperations, int], Coroutine[Any, Any, Any]]] = {
    "look up": lambda operations, inode: operations.lookup(inode, b"file", CALLER),
    "make": lambda operations, inode: operations.mkdir(inode, b"escaped", 0o755, CALLER),
    "write": lambda operations, inode: operations.create(inode, b"escaped-file", 0o644, os.O_RDWR, CALLER),
    "rename": lambda operations, inode: operations.rename(inode, b"file", inode, b"escaped-too", 0, CALLER),
    "list": lambda operations, inode: operations.opendir(inode, CALLER),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_no_race_of_a_directory_and_a_link_leads_out(
    disk: Disk, outside: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While ``sub`` and a link to the outside change places without pause, nothing outside is touched."""
    # Too few to keep one of these directories open: each is found again by its path.
    monkeypatch.setattr(passthrough_tree, "DIRECTORY_LIMIT", 2)
    (disk.path / "sub" / "sub").mkdir(parents=True)
    (disk.path / "sub" / "sub" / "file").write_bytes(b"mine")
    (disk.path / "link").symlink_to(outside)
    before = tree_of(outside)
    stop = threading.Event()
    parent = os.open(disk.path, os.O_PATH)

    def swap() -> None:
        while not stop.is_set():
            rename(parent, b"sub", parent, b"link", RENAME_EXCHANGE)

    swapping = threading.Thread(target=swap)
    swapping.start()
    secret = (outside / "file").stat().st_ino, (outside / "sub" / "file").stat().st_ino
    try:
        for _ in range(300):
            with suppress(OSError):
                inner = disk.look_up(b"sub", b"sub")
                found = run(ACTIONS[name](disk.operations, inner))
                if name == "look up":
                    assert found.st_ino & ~DISK_TAG not in secret
                elif name == "list":
                    run(disk.operations.releasedir(found))
                elif name == "write":
                    run(disk.operations.release(found[0].fh))
    finally:
        stop.set()
        swapping.join()
        os.close(parent)
    assert tree_of(outside) == before


# Opening


def test_truncating_a_setuid_file_tells_the_kernel(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "disk", "shared/team/data")
    (disk.path / "file").touch()
    (disk.path / "file").chmod(0o6755)
    file = disk.look_up(b"file")
    other = cast(RequestContext, SimpleNamespace(uid=1001, gid=1001, pid=0, umask=0o022))
    run(disk.operations.release(run(disk.operations.open(file, os.O_WRONLY | os.O_TRUNC, other)).fh))
    assert stat.S_IMODE((disk.path / "file").stat().st_mode) == 0o755
    assert disk.invalidated == [file]
    disk.operations.close()


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK])
def test_special_files_are_never_opened_here(disk: Disk, kind: int) -> None:
    """Opening a FIFO would wait for its other end, and stop the mount."""
    special = run(disk.operations.mknod(disk.root, b"special", kind | 0o644, 0, CALLER)).st_ino
    assert error_of(disk.operations.open(special, os.O_RDONLY, CALLER)) == "ENOTSUP"


# Capabilities


def test_a_capability_is_seen_as_soon_as_it_is_set(disk: Disk) -> None:
    """The kernel asks before every write, and is answered from memory; only a new one makes that wrong."""
    if os.geteuid() != 0:
        pytest.skip("only root may set one")
    capability = bytes.fromhex("0100000200040000" + "00" * 12)
    (disk.path / "file").touch()
    file = disk.look_up(b"file")
    asked = [error_of(disk.operations.getxattr(file, b"security.capability", CALLER)) for _ in range(2)]
    run(disk.operations.setxattr(file, b"security.capability", capability, CALLER))
    assert asked == ["ENODATA", "ENODATA"]
    assert run(disk.operations.getxattr(file, b"security.capability", CALLER)) == capability
