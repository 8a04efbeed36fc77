"""Ordinary directories without a mount: roots, names, what a changed disk answers, descriptors."""

import errno
import os
import stat
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from pyfuse3 import EntryAttributes, RequestContext, SetattrFields

from backend.system_calls import RENAME_EXCHANGE, rename
from ctxfs.files import passthrough_tree
from ctxfs.files.passthrough import DiskOperations
from ctxfs.files.passthrough_inodes import DISK_TAG
from ctxfs.files.passthrough_tree import DIRECTORY_LIMIT

T = TypeVar("T")
HOME = f"home/{os.geteuid()}"
KEY = f"{HOME}/agent/coder/data"
CALLER = cast(RequestContext, SimpleNamespace(uid=os.geteuid(), gid=os.getegid(), pid=0, umask=0o022))
NOT_NAMES = (b"", b".", b"..", b"../x", b"a/b", b"/etc")


def run(handler: Coroutine[Any, Any, T]) -> T:
    """The answer of a handler, which may wait for nothing here."""
    try:
        handler.send(None)
    except StopIteration as stop:
        return cast(T, stop.value)
    raise AssertionError("the handler waits")


def error_of(handler: Coroutine[Any, Any, Any]) -> str:
    try:
        run(handler)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "ok"


class Inside:
    """A directory for everybody, below a root: with a file (one with two names, too) and an empty directory."""

    def __init__(self, base: Path, key: str = "home/1001/agent/a/data") -> None:
        self.operations = DiskOperations(base, as_root=True, invalidate=lambda _: None)
        self.root = self.operations.make_root(key, -1, -1, 0o777)
        self.path = base / key / "directory"
        self.path.mkdir()
        self.path.chmod(0o777)
        self.refresh()

    def refresh(self) -> None:
        """Makes again what may have been removed, and looks it up."""
        for name in os.listdir(self.path):
            (os.rmdir if (self.path / name).is_dir() else os.unlink)(self.path / name)
        (self.path / "file").touch()
        (self.path / "one").touch()
        os.link(self.path / "one", self.path / "two")
        (self.path / "empty").mkdir()
        self.directory = self._look_up(self.root, b"directory")
        self.file = self._look_up(self.directory, b"file")
        self.linked = self._look_up(self.directory, b"one")
        assert self._look_up(self.directory, b"two") == self.linked

    def _look_up(self, parent: int, name: bytes) -> int:
        return int(run(self.operations.lookup(parent, name, CALLER)).st_ino)


class Disk:
    """A ``DiskOperations`` with one root, and what is needed to look behind it."""

    def __init__(self, base: Path, key: str = KEY) -> None:
        self.invalidated: list[int] = []
        self.operations = DiskOperations(base, as_root=os.geteuid() == 0, invalidate=self.invalidated.append)
        self.root = self.operations.make_root(key, -1, -1, 0o755)
        self.path = base / key

    def look_up(self, *names: bytes) -> int:
        inode = self.root
        for name in names:
            inode = run(self.operations.lookup(inode, name, CALLER)).st_ino
        return inode

    def forget(self, inode: int, lookups: int = 1) -> None:
        run(self.operations.forget([(inode, lookups)]))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    found = Disk(tmp_path / "disk")
    yield found
    found.operations.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


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


def forget_descriptors(disk: Disk) -> None:
    """Asks for so many other directories that none of those before is still open."""
    (disk.path / "many").mkdir()
    for number in range(DIRECTORY_LIMIT + 1):
        (disk.path / "many" / str(number)).mkdir()
        run(disk.operations.getattr(disk.look_up(b"many", b"%d" % number), CALLER))


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


# Descriptors


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


MINE = cast(RequestContext, SimpleNamespace(uid=1001, gid=1001, pid=0, umask=0o022))
ROOTS = cast(RequestContext, SimpleNamespace(uid=0, gid=0, pid=0, umask=0o022))
ANOTHERS = cast(RequestContext, SimpleNamespace(uid=1002, gid=1002, pid=0, umask=0o022))


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    inside = Inside(tmp_path / "disk")
    yield inside
    inside.operations.close()


# Each call that opens, or changes a name, in a directory that everybody may write to.
CHECKED: dict[str, Callable[[Inside, int, RequestContext], Coroutine[Any, Any, Any]]] = {
    "open": lambda at, _, who: at.operations.open(at.file, os.O_RDONLY, who),
    "open of a file with two names": lambda at, _, who: at.operations.open(at.linked, os.O_RDONLY, who),
    "opendir": lambda at, directory, who: at.operations.opendir(directory, who),
    "create": lambda at, directory, who: at.operations.create(directory, b"new", 0o600, os.O_WRONLY, who),
    "mkdir": lambda at, directory, who: at.operations.mkdir(directory, b"new", 0o700, who),
    "mknod": lambda at, directory, who: at.operations.mknod(directory, b"new", stat.S_IFIFO | 0o600, 0, who),
    "symlink": lambda at, directory, who: at.operations.symlink(directory, b"new", b"x", who),
    "link": lambda at, directory, who: at.operations.link(at.file, directory, b"new", who),
    "unlink": lambda at, directory, who: at.operations.unlink(directory, b"file", who),
    "rmdir": lambda at, directory, who: at.operations.rmdir(directory, b"empty", who),
    "rename": lambda at, directory, who: at.operations.rename(directory, b"file", directory, b"new", 0, who),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
@pytest.mark.parametrize("what", CHECKED)
def test_a_home_is_its_uids_whatever_its_modes_say(inside: Inside, what: str) -> None:
    call = CHECKED[what]
    assert error_of(call(inside, inside.directory, ANOTHERS)) == "EACCES"
    assert error_of(call(inside, inside.directory, MINE)) == "ok"
    inside.refresh()
    assert error_of(call(inside, inside.directory, ROOTS)) == "ok"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
@pytest.mark.parametrize("what", CHECKED)
def test_shared_spaces_rely_on_the_kernels_check(tmp_path: Path, what: str) -> None:
    shared = Inside(tmp_path / "disk", "shared/team/data")
    assert error_of(CHECKED[what](shared, shared.directory, ANOTHERS)) == "ok"
    shared.operations.close()


def test_what_moved_to_another_home_is_that_ones(inside: Inside) -> None:
    bobs = inside.operations.make_root("home/1002/agent/b/data", -1, -1, 0o777)
    run(inside.operations.rename(inside.root, b"directory", bobs, b"directory", 0, ROOTS))
    assert error_of(inside.operations.open(inside.file, os.O_RDONLY, ANOTHERS)) == "ok"
    assert error_of(inside.operations.open(inside.file, os.O_RDONLY, MINE)) == "EACCES"


def test_a_descriptor_that_is_passed_on_keeps_working(inside: Inside) -> None:
    opened = run(inside.operations.open(inside.file, os.O_RDWR, MINE))
    assert run(inside.operations.write(opened.fh, 0, b"x")) == 1
    listing = run(inside.operations.opendir(inside.directory, MINE))
    run(inside.operations.releasedir(listing))
    run(inside.operations.release(opened.fh))
