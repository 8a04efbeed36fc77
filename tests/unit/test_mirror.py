"""A mirror is the tree as it is (what ``mountctl backup`` makes of ordinary directories)."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend.mirror import Mirror

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away and makes devices")


def mirror(tmp_path: Path, skips: Callable[[str], bool] = lambda _: False) -> Mirror:
    for name in ("source", "target"):
        (tmp_path / name).mkdir(exist_ok=True)
    return Mirror(tmp_path / "source", tmp_path / "target", skips, lambda _: None)


def seen(root: Path) -> dict[str, Any]:
    """All that there is to say of a tree."""
    return {str(path.relative_to(root)): _seen(path) for path in [root, *root.rglob("*")]}


def _seen(path: Path) -> Any:
    found = path.lstat()
    xattrs = {
        name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)
    }
    about = (found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns, found.st_rdev, xattrs)
    if path.is_symlink():
        return (*about, os.readlink(path))
    return (*about, found.st_nlink, path.read_bytes()) if path.is_file() else about


def deep(root: Path) -> None:
    for _ in range(300):
        root /= "d"
        root.mkdir()


def odd_names(root: Path) -> None:
    for name in (b"\xff\xfe", b"new\nline", b"-rf", b"\xc3\xa9", b"e\xcc\x81", b"n" * 255):
        Path(os.fsdecode(bytes(root) + b"/" + name)).write_bytes(name)


def acl(root: Path) -> None:
    root.chmod(0o750)
    default = bytes.fromhex("0200000001000700ffffffff04000500ffffffff20000000ffffffff")
    os.setxattr(root, "system.posix_acl_default", default)
    (root / "inner").mkdir()
    (root / "inner/file").write_text("x")
    os.removexattr(root / "inner", "system.posix_acl_default")


def devices(root: Path) -> None:
    os.mknod(root / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (root / "given").write_text("x")
    os.chown(root / "given", 1001, 1002)
    (root / "given").chmod(0o4750)
    (root / "linked").symlink_to("given")
    os.lchown(root / "linked", 1001, 1002)


def files(root: Path) -> None:
    (root / "a").mkdir(0o701)
    (root / "a/b").write_bytes(b"x" * 100_000)


def unwritable(root: Path) -> None:
    files(root)
    (root / "a").chmod(0o500)


def links(root: Path) -> None:
    files(root)
    os.link(root / "a/b", root / "c")
    (root / "broken").symlink_to("/nowhere")
    (root / "up").symlink_to("..")


def attributes(root: Path) -> None:
    files(root)
    os.setxattr(root / "a/b", "user.x", b"\0\1")
    os.setxattr(root, "user.y", b"")


CASES: dict[str, Callable[[Path], None]] = {
    "nothing": lambda root: None,
    "files and directories": files,
    "a directory that its owner cannot write": unwritable,
    "links": links,
    "a FIFO": lambda root: os.mkfifo(root / "fifo", 0o640),
    "extended attributes": attributes,
    "odd names": odd_names,
    "deeply nested": deep,
    "access control lists": acl,
}


@pytest.mark.parametrize("umask", [0, 0o077])
@pytest.mark.parametrize("case", CASES)
def test_a_mirror_is_the_tree(tmp_path: Path, case: str, umask: int) -> None:
    copier = mirror(tmp_path)
    CASES[case](tmp_path / "source")
    old = os.umask(umask)
    try:
        copier.copy()
    finally:
        os.umask(old)
    assert seen(tmp_path / "target") == seen(tmp_path / "source")


@AS_ROOT
def test_owners_devices_and_set_id_bits_are_kept(tmp_path: Path) -> None:
    copier = mirror(tmp_path)
    devices(tmp_path / "source")
    copier.copy()
    assert seen(tmp_path / "target") == seen(tmp_path / "source")


def test_holes_stay_holes(tmp_path: Path) -> None:
    copier = mirror(tmp_path)
    with (tmp_path / "source/sparse").open("wb") as file:
        file.seek(50 << 20)
        file.write(b"end")
        file.truncate(100 << 20)
    copier.copy()
    copy = (tmp_path / "target/sparse").stat()
    assert copy.st_size == 100 << 20
    assert copy.st_blocks * 512 < 1 << 20
    with (tmp_path / "target/sparse").open("rb") as file:
        file.seek(50 << 20)
        assert file.read(4) == b"end\0"


def longer(root: Path) -> None:
    (root / "a/b").write_text("longer than before")


def of_that_size_and_time(root: Path) -> None:
    (root / "a/b").write_text("B")
    os.utime(root / "a/b", ns=(0, 0))


def gone(root: Path) -> None:
    shutil.rmtree(root / "a")


def file_for_directory(root: Path) -> None:
    gone(root)
    (root / "a").write_text("file")


def directory_for_file(root: Path) -> None:
    (root / "a/b").unlink()
    (root / "a/b").mkdir()


def moved(root: Path) -> None:
    (root / "a").rename(root / "z")


CHANGES: dict[str, Callable[[Path], None]] = {
    "more in a file": longer,
    "other content of that size and time": of_that_size_and_time,
    "a file gone": lambda root: os.unlink(root / "a/b"),
    "a directory gone": gone,
    "a file where a directory was": file_for_directory,
    "a directory where a file was": directory_for_file,
    "moved": moved,
    "another mode": lambda root: os.chmod(root / "a", 0o711),
    "an attribute gone": lambda root: os.removexattr(root / "a", "user.x"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_pass_makes_good_what_changed(tmp_path: Path, change: str) -> None:
    copier, source = mirror(tmp_path), tmp_path / "source"
    (source / "a").mkdir()
    (source / "a/b").write_text("b")
    os.utime(source / "a/b", ns=(0, 0))
    os.setxattr(source / "a", "user.x", b"x")
    copier.copy()
    CHANGES[change](source)
    copier.copy()
    assert seen(tmp_path / "target") == seen(source)


def test_what_is_to_be_left_out_is(tmp_path: Path) -> None:
    copier = mirror(tmp_path, lambda path: path in ("lock", "a/lock"))
    for name in ("lock", "a/lock", "a/b/lock"):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_text("")
    copier.copy()
    assert sorted(seen(tmp_path / "target")) == [".", "a", "a/b", "a/b/lock"]


def test_a_failure_names_the_file(tmp_path: Path) -> None:
    def give_up(_: int) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "source").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "source/a").write_text("a")
    with pytest.raises(OSError, match="No space left") as raised:
        Mirror(tmp_path / "source", tmp_path / "target", lambda _: False, give_up).copy()
    assert raised.value.filename == str(tmp_path / "source/a")
