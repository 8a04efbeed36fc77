"""Trees of files with everything in them that a copy can lose, and what there is to compare of a tree."""

import hashlib
import os
import socket
import stat
from pathlib import Path
from typing import Any, NamedTuple

_ACL_GROUP_1002_MAY_READ = bytes.fromhex(
    "02000000" + "01000600ffffffff" + "04000400ffffffff" + "08000400ea030000" + "10000400ffffffff" + "20000000ffffffff"
)
_CAPABILITY = bytes.fromhex("0100000200040000000000000000000000000000")
_LONG_AGO_NS = 1_000_000_000_123_456_789

NAMES = [
    b"plain.txt",
    b"with space",
    b"new\nline",
    b"quo\"te's",
    b"-dash",
    b"tab\tbell\a",
    "工作区 😀 é".encode(),
    "e\u0301".encode(),
    b"not utf-8 \xff\xfe",
    b"back\\slash",
    b"n" * 255,
    b"*?[a]",
    b".hidden",
]


class Found(NamedTuple):
    """What a copy must keep of one entry."""

    kind: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    size: int
    content: str | bytes
    device: int
    xattrs: dict[str, bytes]
    is_sparse: bool


def plant(root: Path) -> None:
    """Fills a directory."""
    top = os.fsencode(root)
    for number, name in enumerate(NAMES):
        _write(top + b"/" + name, b"%d\n" % number * number)
    (root / "empty directory").mkdir(mode=0o711)
    deep = root / "a/b/c/d/e/f"
    deep.mkdir(parents=True)
    (deep / "deep").write_bytes(os.urandom(100_000))
    os.link(deep / "deep", root / "hard link")
    os.link(deep / "deep", root / "a/another hard link")
    for kind, target in {
        "relative": "plain.txt",
        "absolute": str(root / "a"),
        "dangling": "no/where",
        "out": "/etc",
    }.items():
        (root / f"link {kind}").symlink_to(target)
    _plant_sparse(root)
    _plant_special(root)
    _plant_attributes(root)
    _age(root)


def _write(path: bytes, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def _plant_sparse(root: Path) -> None:
    with (root / "sparse").open("wb") as file:
        file.seek(4 << 20)
        file.write(b"middle")
        file.truncate(16 << 20)
    with (root / "all hole").open("wb") as file:
        file.truncate(8 << 20)


def _plant_special(root: Path) -> None:
    os.mkfifo(root / "fifo", 0o640)
    os.mknod(root / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as listener:
        directory = os.open(root, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{directory}/socket")
        os.close(directory)


def _plant_attributes(root: Path) -> None:
    for name, uid in (("of alice", 1001), ("of bob", 1002)):
        (root / name).write_text(name)
        os.chown(root / name, uid, uid + 1)
    os.chown(root / "link dangling", 1001, 1002, follow_symlinks=False)
    for name, mode in (("of alice", 0o4711), ("of bob", 0o2755), ("with space", 0o000), ("a", 0o1777), ("a/b", 0o2775)):
        (root / name).chmod(mode)
    os.setxattr(root / "plain.txt", "user.note", b"\0\xff")
    os.setxattr(root / "plain.txt", "security.capability", _CAPABILITY)
    os.setxattr(root / "a", "trusted.note", b"x" * 100)
    os.setxattr(root / "link out", "trusted.note", b"of a link", follow_symlinks=False)
    os.setxattr(root / "-dash", "system.posix_acl_access", _ACL_GROUP_1002_MAY_READ)
    os.setxattr(root / "a/b", "system.posix_acl_default", _ACL_GROUP_1002_MAY_READ)


def _age(root: Path) -> None:
    """Gives every entry a time of its own, to the nanosecond."""
    paths = _paths(os.fsencode(root))
    for number, path in enumerate(reversed(paths)):
        os.utime(path, ns=(_LONG_AGO_NS, _LONG_AGO_NS + number * 1_000_000_001), follow_symlinks=False)


def describe(root: Path) -> dict[bytes, Any]:
    """All of a tree that a copy must keep, the root's own attributes and which names are one file among it."""
    top = os.fsencode(root.resolve())
    found: dict[bytes, Any] = {path[len(top) :]: _found(path) for path in [top, *_paths(top)]}
    return found | {b"hard links": _hard_links(top)}


def _paths(top: bytes) -> list[bytes]:
    return [os.path.join(directory, name) for directory, below, files in os.walk(top) for name in sorted(below + files)]


def _found(path: bytes) -> Found:
    at = os.lstat(path)
    kind = stat.S_IFMT(at.st_mode)
    content: str | bytes = b""
    if kind == stat.S_IFREG:
        with open(path, "rb") as file:
            content = hashlib.sha256(file.read()).hexdigest()
    elif kind == stat.S_IFLNK:
        content = os.readlink(path)
    size = 0 if kind == stat.S_IFDIR else at.st_size
    xattrs = {
        name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)
    }
    is_sparse = kind == stat.S_IFREG and at.st_blocks * 512 < at.st_size // 2
    mode = stat.S_IMODE(at.st_mode)
    return Found(kind, mode, at.st_uid, at.st_gid, at.st_mtime_ns, size, content, at.st_rdev, xattrs, is_sparse)


def _hard_links(top: bytes) -> set[frozenset[bytes]]:
    by_inode: dict[tuple[int, int], set[bytes]] = {}
    for path in _paths(top):
        at = os.lstat(path)
        if not stat.S_ISDIR(at.st_mode):
            by_inode.setdefault((at.st_dev, at.st_ino), set()).add(path[len(top) :])
    return {frozenset(paths) for paths in by_inode.values() if len(paths) > 1}
