"""Opening: every flag on every kind of target, and what creation gives a file."""

import fcntl
import os
import socket
from typing import Any

from tests.posix.table import case, rows
from tests.posix.world import World, content, look, mode_of, opened, outcome, put, touch_open, tree

FLAGS = {
    "RDONLY": os.O_RDONLY,
    "WRONLY": os.O_WRONLY,
    "RDWR": os.O_RDWR,
    "RDONLY|CREAT": os.O_RDONLY | os.O_CREAT,
    "RDWR|CREAT": os.O_RDWR | os.O_CREAT,
    "RDWR|CREAT|EXCL": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "RDWR|CREAT|NOFOLLOW": os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW,
    "WRONLY|TRUNC": os.O_WRONLY | os.O_TRUNC,
    "RDONLY|TRUNC": os.O_RDONLY | os.O_TRUNC,
    "RDWR|CREAT|TRUNC": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "RDONLY|DIRECTORY": os.O_RDONLY | os.O_DIRECTORY,
    "RDONLY|NOFOLLOW": os.O_RDONLY | os.O_NOFOLLOW,
    "PATH": os.O_PATH,
    "PATH|NOFOLLOW": os.O_PATH | os.O_NOFOLLOW,
    "WRONLY|APPEND": os.O_WRONLY | os.O_APPEND,
    "RDWR|SYNC": os.O_RDWR | os.O_SYNC,
    "RDWR|DSYNC": os.O_RDWR | os.O_DSYNC,
    "RDONLY|NOATIME": os.O_RDONLY | os.O_NOATIME,
    "RDWR|DIRECT": os.O_RDWR | os.O_DIRECT,
}
TARGETS = {
    "missing": (),
    "file": ("file",),
    "empty": ("empty",),
    "directory": ("directory",),
    "to-file": ("file", "to-file"),
    "to-directory": ("directory", "to-directory"),
    "to-missing": ("to-missing",),
    "loop": ("loop",),
    "fifo": ("fifo",),
    "socket": ("socket",),
    "file/below": ("file",),
    "file/": ("file",),
    "missing/": (),
    "directory/": ("directory",),
    "to-file/": ("file", "to-file"),
    "to-directory/": ("directory", "to-directory"),
    "to-missing/": ("to-missing",),
    "missing/below": (),
    "to-directory/new": ("directory", "to-directory"),
    ".": (),
    "": (),
}
"""Names to open, and what must be there for it."""


def make(name: str) -> None:
    if name == "file":
        put(name, b"content")
    elif name == "empty":
        put(name, b"")
    elif name == "directory":
        os.mkdir(name)
    elif name == "fifo":
        os.mkfifo(name)
    elif name == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(name)
    else:
        os.symlink(name.removeprefix("to-"), name)


@rows("open", {f"{flag} of {target!r}": (target, FLAGS[flag]) for target in TARGETS for flag in FLAGS})
def open_target(world: World, row: tuple[str, int]) -> Any:
    target, flags = row
    for name in TARGETS[target]:
        make(name)

    def describe(fd: int) -> list[Any]:
        kept = fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND | os.O_DSYNC | os.O_NOATIME)
        return [look(fd), kept]

    return [outcome(opened, target, flags | os.O_NONBLOCK, describe), tree()]


MODES = (0o000, 0o400, 0o200, 0o644, 0o666, 0o777, 0o1777, 0o2755, 0o4755, 0o6777)


@rows("create", {f"mode {mode:o} umask {umask:o}": (mode, umask) for mode in MODES for umask in (0, 0o022, 0o077)})
def create_mode(world: World, row: tuple[int, int]) -> Any:
    mode, umask = row
    os.umask(umask)
    try:
        touch_open("file", os.O_RDWR | os.O_CREAT, mode)
        os.mkdir("directory", mode)
        os.mkfifo("fifo", mode)
        os.mknod("node", mode)
        os.symlink("target", "link")
    finally:
        os.umask(0o022)
    return [look(name) for name in ("file", "directory", "fifo", "node", "link")]


@case("create: a read-only file can be written through the handle that made it")
def write_read_only(world: World) -> Any:
    fd = os.open("file", os.O_RDWR | os.O_CREAT, 0o400)
    os.write(fd, b"written")
    os.ftruncate(fd, 5)
    os.close(fd)
    return [content("file"), outcome(touch_open, "file", os.O_WRONLY)]


@case("create: mode 0 file is writable through its handle")
def write_mode_zero(world: World) -> Any:
    fd = os.open("file", os.O_RDWR | os.O_CREAT, 0)
    os.write(fd, b"written")
    result = os.pread(fd, 20, 0).decode()
    os.close(fd)
    return [result, mode_of("file"), outcome(content, "file")]


@case("create: O_CREAT on an existing file changes nothing")
def create_existing(world: World) -> Any:
    put("file", b"old", 0o600)
    touch_open("file", os.O_WRONLY | os.O_CREAT, 0o777)
    return [look("file"), content("file")]


@case("create: through a dangling link makes its target")
def create_through_link(world: World) -> Any:
    os.mkdir("directory")
    os.symlink("directory/made", "link")
    touch_open("link", os.O_WRONLY | os.O_CREAT)
    return tree()


@case("create: in a removed directory")
def create_in_removed(world: World) -> Any:
    os.mkdir("gone")
    fd = os.open("gone", os.O_RDONLY)
    os.rmdir("gone")
    results = [
        outcome(os.open, "file", os.O_CREAT | os.O_WRONLY, dir_fd=fd),
        outcome(os.mkdir, "directory", dir_fd=fd),
        outcome(os.symlink, "target", "link", dir_fd=fd),
        outcome(os.stat, "file", dir_fd=fd),
        outcome(os.listdir, fd),
        look(fd),
    ]
    os.close(fd)
    return results


@case("create: O_TMPFILE")
def create_unnamed(world: World) -> Any:
    return outcome(touch_open, ".", os.O_TMPFILE | os.O_RDWR)


@case("create: O_CREAT | O_DIRECTORY")
def create_directory_flag(world: World) -> Any:
    return [outcome(touch_open, "new", os.O_CREAT | os.O_DIRECTORY), tree()]


@case("open: many handles of one file are independent")
def many_handles(world: World) -> Any:
    put("file", b"0123456789")
    handles = [os.open("file", os.O_RDONLY) for _ in range(50)]
    for at, fd in enumerate(handles):
        os.lseek(fd, at % 10, os.SEEK_SET)
    result = "".join(os.read(fd, 1).decode() for fd in handles)
    for fd in handles:
        os.close(fd)
    return result


@case("open: through /proc/self/fd with other rights than the first handle")
def reopen(world: World) -> Any:
    put("file", b"old")
    fd = os.open("file", os.O_RDONLY)
    opened(f"/proc/self/fd/{fd}", os.O_WRONLY, lambda again: os.write(again, b"new"))
    result = os.pread(fd, 10, 0).decode()
    os.close(fd)
    return result


@case("open: a handle keeps its rights when the mode changes")
def handle_keeps_rights(world: World) -> Any:
    put("file", b"old", 0o600)
    fd = os.open("file", os.O_RDWR)
    os.chmod("file", 0)
    os.pwrite(fd, b"new", 0)
    result = os.pread(fd, 10, 0).decode()
    os.close(fd)
    return [result, outcome(touch_open, "file", os.O_RDONLY)]


@case("open: dir_fd leads there after the directory was renamed")
def handle_follows_rename(world: World) -> Any:
    os.mkdir("before")
    fd = os.open("before", os.O_RDONLY)
    os.rename("before", "after")
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    return tree()
