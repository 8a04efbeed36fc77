"""rename and renameat2: every kind of source onto every kind of target, and what moves along."""

import ctypes
import itertools
import os
from typing import Any

from tests.posix.table import case, rows
from tests.posix.world import World, checked, content, libc, look, outcome, put, tree

NOREPLACE, EXCHANGE = 1, 2
FLAGS = {"plain": 0, "NOREPLACE": NOREPLACE, "EXCHANGE": EXCHANGE}
AT_FDCWD = -100


def rename2(source: str, target: str, flags: int) -> None:
    checked(libc.renameat2(AT_FDCWD, source.encode(), AT_FDCWD, target.encode(), ctypes.c_uint(flags)))


SIZES = {"source": 1, "target": 2}


def make(kind: str, name: str) -> None:
    if kind == "file":
        put(name, b"x" * SIZES[name])
    elif kind == "empty directory":
        os.mkdir(name)
    elif kind == "full directory":
        os.mkdir(name)
        put(f"{name}/inside", b"x" * SIZES[name])
    elif kind == "symlink":
        os.symlink(f"from {name}", name)
    elif kind == "symlink to directory":
        os.mkdir(f"{name} is here")
        os.symlink(f"{name} is here", name)
    elif kind == "fifo":
        os.mkfifo(name)


KINDS = ("missing", "file", "empty directory", "full directory", "symlink", "symlink to directory", "fifo")
MATRIX = {
    f"{flag}, {source} onto {target}": (source, target, flag)
    for source, target, flag in itertools.product(KINDS, KINDS, FLAGS)
}


@rows("rename", MATRIX)
def rename_matrix(world: World, row: tuple[str, str, str]) -> Any:
    source, target, flag = row
    make(source, "source")
    make(target, "target")
    return [outcome(rename2, "source", "target", FLAGS[flag]), tree()]


PATHS = {
    "onto itself": ("file", "file"),
    "onto its other link": ("file", "linked"),
    "into a directory": ("file", "full/file"),
    "into a directory through a link": ("file", "to-full/file"),
    "directory into itself": ("full", "full/below"),
    "directory into its own subdirectory": ("full", "full/sub/below"),
    "directory onto its parent": ("full/sub", "full"),
    "directory up": ("full/sub", "up"),
    "directory into another": ("full/sub", "other/sub"),
    "directory with trailing slashes": ("full/", "renamed/"),
    "file with trailing slash": ("file/", "renamed"),
    "file onto trailing slash": ("file", "renamed/"),
    "below a file": ("file", "linked/below"),
    "below nothing": ("file", "missing/below"),
    "from below a file": ("file/below", "renamed"),
    "dot": (".", "renamed"),
    "onto dot": ("full", "."),
    "dot-dot": ("full/..", "renamed"),
    "onto dot-dot": ("file", "full/.."),
    "empty name": ("", "renamed"),
    "onto empty name": ("file", ""),
    "symlink, not what it leads to": ("to-full", "renamed"),
    "symlink with trailing slash": ("to-full/", "renamed"),
}
PATH_MATRIX = {f"{flag}, {title}": (*paths, flag) for (title, paths), flag in itertools.product(PATHS.items(), FLAGS)}


@rows("rename path", PATH_MATRIX)
def rename_paths(world: World, row: tuple[str, str, str]) -> Any:
    source, target, flag = row
    put("file")
    os.link("file", "linked")
    os.makedirs("full/sub")
    os.mkdir("other")
    put("full/inside")
    os.symlink("full", "to-full")
    return [outcome(rename2, source, target, FLAGS[flag]), tree()]


@rows("rename", {"unknown flags": 1 << 5, "NOREPLACE and EXCHANGE": NOREPLACE | EXCHANGE})
def rename_flags(world: World, flags: int) -> Any:
    put("source")
    put("target")
    return [outcome(rename2, "source", "target", flags), tree()]


@case("rename: open files and directories follow")
def rename_open(world: World) -> Any:
    os.mkdir("before")
    put("before/file", b"1")
    fd = os.open("before/file", os.O_RDWR | os.O_APPEND)
    os.rename("before", "after")
    os.write(fd, b"2")
    os.rename("after/file", "file")
    os.write(fd, b"3")
    os.close(fd)
    return [content("file"), tree()]


@case("rename: a replaced open file stays readable")
def rename_over_open(world: World) -> Any:
    put("source", b"new")
    put("target", b"old")
    fd = os.open("target", os.O_RDWR)
    os.rename("source", "target")
    os.write(fd, b"O")
    result = [os.pread(fd, 10, 0).decode(), content("target"), os.fstat(fd).st_nlink, os.stat("target").st_nlink]
    os.close(fd)
    return result


@case("rename: over one of two links of a file")
def rename_over_link(world: World) -> Any:
    put("source", b"new")
    put("first", b"old")
    os.link("first", "second")
    os.rename("source", "first")
    return [look("second"), look("first"), content("second"), tree()]


@case("rename: link counts of directories")
def rename_link_counts(world: World) -> Any:
    os.makedirs("one/sub")
    os.mkdir("two")
    counts = [os.stat(name).st_nlink for name in ("one", "two")]
    os.rename("one/sub", "two/sub")
    counts += [os.stat(name).st_nlink for name in ("one", "two")]
    os.mkdir("three")
    os.rename("three", "two/sub")
    return counts + [os.stat(name).st_nlink for name in (".", "one", "two")]


@case("rename: exchange of link counts")
def exchange_link_counts(world: World) -> Any:
    os.makedirs("one/sub")
    os.mkdir("two")
    put("two/file")
    rename2("one/sub", "two/file", EXCHANGE)
    return [os.stat(name).st_nlink for name in ("one", "two")] + [tree()]


@case("rename: .. of a moved directory is its new parent")
def rename_parent(world: World) -> Any:
    os.makedirs("one/sub")
    os.mkdir("two")
    put("two/here")
    fd = os.open("one/sub", os.O_RDONLY)
    os.rename("one/sub", "two/sub")
    up = os.open("..", os.O_RDONLY, dir_fd=fd)
    result = sorted(os.listdir(up))
    os.close(up)
    os.close(fd)
    return result


@case("rename: a file under a directory that is moved back and forth")
def rename_back_and_forth(world: World) -> Any:
    os.makedirs("a/b/c")
    put("a/b/c/file", b"1")
    results = []
    for turn in range(6):
        os.rename(*(("a", "z"), ("z", "a"))[turn % 2])
        results.append(content("za"[turn % 2] + "/b/c/file"))
    return results


@case("rename: exchange swaps open files' names only")
def exchange_open(world: World) -> Any:
    put("one", b"1")
    put("two", b"2")
    fd = os.open("one", os.O_RDWR)
    rename2("one", "two", EXCHANGE)
    os.pwrite(fd, b"!", 0)
    os.close(fd)
    return [content("one"), content("two")]


@case("rename: exchange of a directory and a symlink to it")
def exchange_link(world: World) -> Any:
    os.mkdir("directory")
    put("directory/file")
    os.symlink("directory", "link")
    rename2("directory", "link", EXCHANGE)
    return [tree(), outcome(content, "link/file"), outcome(content, "directory/file")]


@case("rename: another user's file in one's own directory")
def rename_foreign(world: World) -> Any:
    put("mine")
    with world.acting(0):
        put("theirs", mode=0o600)
        os.mkdir("their-directory", 0o755)
    return [
        outcome(os.rename, "mine", "theirs"),
        outcome(os.rename, "theirs", "renamed"),
        outcome(os.mkdir, "sub"),
        outcome(os.rename, "their-directory", "sub/moved"),
        outcome(os.rename, "sub", "their-directory"),
        sorted(os.listdir(".")),
    ]
