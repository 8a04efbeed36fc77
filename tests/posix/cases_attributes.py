"""Times, what changes them, and extended attributes."""

import os
from collections.abc import Callable
from typing import Any

from ctxfs.files.passthrough_calls import set_times
from tests.posix.table import case, rows
from tests.posix.world import World, content, look, next_tick, opened, outcome, put, touch_open

SECOND = 1_000_000_000
TIMES = {
    "nanoseconds": (1234567890_123456789, 1345678901_987654321),
    "the epoch": (0, 0),
    "before the epoch": (-5 * SECOND, -1),
    "after 2038": ((1 << 32) * SECOND, (1 << 33) * SECOND + 999999999),
    "the end of 32 bits": ((1 << 31) * SECOND, ((1 << 31) - 1) * SECOND),
    "only atime": (777 * SECOND, None),
    "only mtime": (None, 777 * SECOND + 1),
    "none": (None, None),
    "beyond what the disk can": ((1 << 40) * SECOND, -(1 << 40) * SECOND),
}


def times(name: str | int) -> tuple[int, int]:
    found = os.stat(name, follow_symlinks=False) if isinstance(name, str) else os.stat(name)
    return found.st_atime_ns, found.st_mtime_ns


@rows("times", TIMES)
def set_given(world: World, row: tuple[int | None, int | None]) -> Any:
    put("file")
    os.utime("file", (10, 20))
    set_times("file", *row)
    return times("file")


@rows("times of", {name: name for name in ("directory", "link", "fifo")})
def set_others(world: World, name: str) -> Any:
    put("file")
    os.utime("file", (10, 20))
    os.mkdir("directory")
    os.symlink("file", "link")
    os.mkfifo("fifo")
    os.utime(name, ns=(5, 7), follow_symlinks=False)
    return [times(name), times("file")]


@case("times: through a link, a handle, a dangling link")
def set_through(world: World) -> Any:
    put("file")
    os.symlink("file", "link")
    os.symlink("missing", "dangling")
    os.utime("link", ns=(5, 7))
    results: list[Any] = [times("file"), outcome(os.utime, "dangling"), outcome(os.utime, "missing")]
    opened("file", os.O_RDONLY, lambda fd: os.utime(fd, ns=(8, 9)))
    return [*results, times("file")]


@case("times: now is now")
def set_now(world: World) -> Any:
    import time

    put("file")
    os.utime("file", (10, 20))
    before = time.time_ns()
    os.utime("file")
    return [before - SECOND < stamp < before + 60 * SECOND for stamp in times("file")]


CHANGES: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "stat": lambda: os.stat("file"),
    "open": lambda: touch_open("file", os.O_RDWR),
    "read": lambda: content("file"),
    "read nothing": lambda: opened("file", os.O_RDONLY, lambda fd: os.read(fd, 0)),
    "write": lambda: opened("file", os.O_WRONLY, lambda fd: os.write(fd, b"x")),
    "write nothing": lambda: opened("file", os.O_WRONLY, lambda fd: os.write(fd, b"")),
    "truncate smaller": lambda: os.truncate("file", 1),
    "truncate to the same size": lambda: os.truncate("file", 7),
    "truncate bigger": lambda: os.truncate("file", 100),
    "ftruncate": lambda: opened("file", os.O_WRONLY, lambda fd: os.ftruncate(fd, 1)),
    "ftruncate to the same size": lambda: opened("file", os.O_WRONLY, lambda fd: os.ftruncate(fd, 7)),
    "open truncating": lambda: touch_open("file", os.O_WRONLY | os.O_TRUNC),
    "open truncating an empty file": lambda: touch_open("empty", os.O_WRONLY | os.O_TRUNC),
    "chmod": lambda: os.chmod("file", 0o600),
    "chmod to the same": lambda: os.chmod("file", 0o644),
    "chown to the same": lambda: os.chown("file", os.geteuid(), -1),
    "chown to nothing": lambda: os.chown("file", -1, -1),
    "set times": lambda: os.utime("file", (10, 20)),
    "set attribute": lambda: os.setxattr("file", "user.note", b"value"),
    "remove attribute": lambda: os.removexattr("file", "user.old"),
    "link": lambda: os.link("file", "linked"),
    "unlink a link": lambda: os.unlink("second"),
    "rename": lambda: os.rename("file", "renamed"),
    "rename over a link": lambda: os.rename("empty", "second"),
    "rename into": lambda: os.rename("file", "directory/file"),
    "create": lambda: touch_open("new", os.O_WRONLY | os.O_CREAT),
    "create existing": lambda: touch_open("file", os.O_WRONLY | os.O_CREAT),
    "mkdir": lambda: os.mkdir("new"),
    "mkdir below": lambda: os.mkdir("directory/new"),
    "rmdir": lambda: os.rmdir("directory"),
    "symlink": lambda: os.symlink("target", "new"),
    "readlink": lambda: os.readlink("link"),
    "list": lambda: os.listdir("directory"),
    "mkfifo": lambda: os.mkfifo("new"),
    "failing create": lambda: outcome(os.mkdir, "file"),
    "failing rename": lambda: outcome(os.rename, "directory", "file"),
    "fsync": lambda: opened("file", os.O_RDWR, os.fsync),
}


def snapshot() -> dict[str, tuple[int, int, int]]:
    found = {}
    for name in (".", "file", "second", "empty", "directory", "link", "renamed", "directory/file", "new"):
        if os.path.lexists(name):
            status = os.lstat(name)
            found[name] = (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
    return found


@rows("changes by", CHANGES)
def changes(world: World, change: Callable[[], Any]) -> Any:
    put("file", b"content", 0o644)
    put("empty", b"")
    os.setxattr("file", "user.old", b"value")
    os.link("file", "second")
    os.mkdir("directory")
    os.symlink("file", "link")
    for name in ("file", "empty", "directory", "link"):
        # Times of access as relatime wants them to be updated.
        os.utime(name, (10, 20), follow_symlinks=False)
    before = snapshot()
    next_tick()
    change()
    after = snapshot()
    return {
        name: [kind for kind, old, new in zip("amc", before.get(name, (0, 0, 0)), stamps, strict=True) if old != new]
        for name, stamps in after.items()
    }


@case("changes: times never go back over writes")
def monotonous(world: World) -> Any:
    put("file")
    seen = []
    for _ in range(5):
        opened("file", os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"x"))
        seen.append(os.stat("file").st_mtime_ns)
        next_tick()
    return [seen == sorted(seen), len(set(seen)) == len(seen)]


@case("changes: a handle and the path show the same attributes")
def handle_attributes(world: World) -> Any:
    put("file")
    fd = os.open("file", os.O_RDWR)
    results = []
    for change in (
        lambda: os.write(fd, b"12345678901"),
        lambda: os.ftruncate(fd, 3),
        lambda: os.fchmod(fd, 0o600),
        lambda: os.link("file", "linked"),
        lambda: os.unlink("linked"),
    ):
        change()
        by_handle, by_path = os.fstat(fd), os.stat("file")
        results.append([by_handle == by_path, look(fd)])
    os.close(fd)
    return results


def replace_four() -> None:
    put("five")
    os.rename("five", "four")


@case("changes: all links of a file show the same attributes")
def link_attributes(world: World) -> Any:
    put("one")
    os.link("one", "two")
    os.mkdir("directory")
    os.link("one", "directory/three")
    results = []
    for change in (
        lambda: os.chmod("two", 0o600),
        lambda: opened("directory/three", os.O_WRONLY, lambda fd: os.write(fd, b"longer than before")),
        lambda: os.unlink("one"),
        lambda: os.rename("two", "four"),
        lambda: os.link("four", "one"),
        replace_four,
    ):
        change()
        results.append([outcome(look, name) for name in ("one", "two", "directory/three", "four")])
    return results


@case("attributes: block size and inode numbers")
def inode_numbers(world: World) -> Any:
    put("one")
    put("two")
    os.link("one", "linked")
    found = {name: os.stat(name) for name in ("one", "two", "linked")}
    with os.scandir(".") as entries:
        listed = {entry.name: entry.inode() for entry in entries}
    os.rename("one", "renamed")
    return [
        found["one"].st_ino == found["linked"].st_ino,
        found["one"].st_ino != found["two"].st_ino,
        all(listed[name] == status.st_ino for name, status in found.items()),
        os.stat("renamed").st_ino == found["one"].st_ino,
        found["one"].st_blksize,
        os.stat(".").st_dev == found["one"].st_dev,
        os.statvfs(".").f_namemax,
        os.statvfs(".").f_bsize,
    ]


@case("attributes: blocks")
def blocks(world: World) -> Any:
    results = []
    for size in (0, 1, 4096, 4097, 100000):
        put(f"file{size}", b"x" * size)
        opened(f"file{size}", os.O_RDWR, os.fsync)
        results.append(os.stat(f"file{size}").st_blocks)
    return results


CREATE, REPLACE = os.XATTR_CREATE, os.XATTR_REPLACE
VALUES = {
    "small": b"value",
    "empty": b"",
    "with zero bytes": b"a\0b\0",
    "3000 bytes": b"x" * 3000,
    "5000 bytes": b"x" * 5000,
    "65536 bytes": b"x" * 65536,
    "65537 bytes": b"x" * 65537,
}


@rows("xattr value", VALUES)
def attribute_value(world: World, value: bytes) -> Any:
    put("file")
    results = [outcome(os.setxattr, "file", "user.note", value)]
    found = outcome(os.getxattr, "file", "user.note")
    return [*results, found if isinstance(found, str) else found == value, os.listxattr("file")]


NAMES = (
    "user.note",
    "user.",
    "user",
    "note",
    "",
    "user." + "x" * 250,
    "user." + "x" * 251,
    "trusted.note",
    "security.note",
    "security.capability",
    "system.note",
    "unknown.note",
    "system.posix_acl_access",
    "user.ümlaut",
)


@rows("xattr name", {name[:30] + ("…" if len(name) > 30 else "") + f" ({len(name)})": name for name in NAMES})
def attribute_name(world: World, name: str) -> Any:
    put("file")
    os.mkdir("directory")
    return [
        [
            outcome(os.getxattr, where, name),
            outcome(os.setxattr, where, name, b"value"),
            outcome(lambda where=where: os.getxattr(where, name).decode()),
            os.listxattr(where),
            outcome(os.removexattr, where, name),
            outcome(os.removexattr, where, name),
        ]
        for where in ("file", "directory")
    ]


@case("xattr: create and replace")
def attribute_flags(world: World) -> Any:
    put("file")
    return [
        outcome(os.setxattr, "file", "user.note", b"1", REPLACE),
        outcome(os.setxattr, "file", "user.note", b"2", CREATE),
        outcome(os.setxattr, "file", "user.note", b"3", CREATE),
        outcome(os.setxattr, "file", "user.note", b"4", REPLACE),
        outcome(os.setxattr, "file", "user.note", b"5", CREATE | REPLACE),
        outcome(os.setxattr, "file", "user.note", b"6", 8),
        os.getxattr("file", "user.note").decode(),
    ]


@case("xattr: many")
def many_attributes(world: World) -> Any:
    put("file")
    for number in range(60):
        os.setxattr("file", f"user.{number}", str(number).encode())
    return [sorted(os.listxattr("file")), os.getxattr("file", "user.59").decode()]


@case("xattr: until the disk has no room for more")
def too_many_attributes(world: World) -> Any:
    put("file")
    for number in range(20):
        result = outcome(os.setxattr, "file", f"user.{number}", b"x" * 1000)
        if result != "ok":
            return [number, result]
    return "all"


def value_of(name: str, attribute: str) -> str:
    return os.getxattr(name, attribute, follow_symlinks=False).decode()


@case("xattr: of links and special files")
def attribute_special(world: World) -> Any:
    put("file")
    os.symlink("file", "link")
    os.symlink("missing", "dangling")
    os.mkfifo("fifo")
    return [
        [
            outcome(os.setxattr, name, attribute, b"value", follow_symlinks=False),
            outcome(value_of, name, attribute),
            outcome(os.listxattr, name, follow_symlinks=False),
        ]
        for name in ("link", "dangling", "fifo")
        for attribute in ("user.note", "trusted.note")
    ]


@case("xattr: through handles and links")
def attribute_handles(world: World) -> Any:
    put("file")
    os.symlink("file", "link")
    os.setxattr("link", "user.link", b"1")
    opened("file", os.O_RDONLY, lambda fd: os.setxattr(fd, "user.handle", b"2"))
    path = opened("file", os.O_PATH, lambda fd: outcome(os.setxattr, fd, "user.path", b"3"))
    return [path, sorted(os.listxattr("file"))]


@case("xattr: who sees trusted ones")
def trusted_listing(world: World) -> Any:
    put("file")
    with world.acting(0):
        os.setxattr("file", "trusted.note", b"value")
    return [os.listxattr("file"), outcome(lambda: os.getxattr("file", "trusted.note").decode())]


@case("xattr: in a sticky directory of another")
def sticky_attributes(world: World) -> Any:
    os.mkdir("directory")
    with world.acting(0):
        os.chown("directory", 0, 0)
        os.chmod("directory", 0o1777)
    return outcome(os.setxattr, "directory", "user.note", b"value")


@case("xattr: stay with the file over link and rename, not over copy")
def attributes_stay(world: World) -> Any:
    put("file")
    os.setxattr("file", "user.note", b"value")
    os.link("file", "linked")
    os.rename("file", "renamed")
    touch_open("renamed", os.O_WRONLY | os.O_TRUNC)
    return [os.getxattr(name, "user.note").decode() for name in ("linked", "renamed")]


@case("xattr: ACLs")
def access_lists(world: World) -> Any:
    put("file")
    acl = bytes.fromhex("02000000010006ffffffff04000400ffffffff20000400ffffffff".replace("010006", "01000600"))
    return [outcome(os.setxattr, "file", "system.posix_acl_access", acl), outcome(os.listxattr, "file")]
