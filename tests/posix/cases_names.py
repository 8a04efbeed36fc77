"""Directories, links, names, paths, listings."""

import os
from typing import Any

from tests.posix.table import case, rows
from tests.posix.world import World, content, in_child, look, opened, outcome, put, touch_open, tree

NAMES = {
    "one byte": b"a",
    "255 bytes": b"n" * 255,
    "256 bytes": b"n" * 256,
    "1024 bytes": b"n" * 1024,
    "1025 bytes": b"n" * 1025,
    "255 bytes of UTF-8": "ä".encode() * 127 + b"n",
    "4095 bytes": b"n" * 4095,
    "4096 bytes": b"n" * 4096,
    "unicode": "naïve 文件 🙂".encode(),
    "invalid UTF-8": b"\xff\xfe\x80",
    "new line": b"a\nb",
    "control bytes": b"\x01\x1b\x7f",
    "space": b" ",
    "backslash": b"a\\b",
    "dash": b"-rf",
    "star": b"*",
    "three dots": b"...",
    "two dots and more": b"..x",
    "hidden": b".hidden",
    "trailing dot": b"a.",
    "tilde": b"~",
    "fuse_hidden": b".fuse_hidden0001",
}


@rows("name", NAMES)
def names(world: World, name: bytes) -> Any:
    return [
        outcome(touch_open, name, os.O_WRONLY | os.O_CREAT),
        outcome(look, name),
        [entry.decode("latin-1") for entry in os.listdir(b".")],
        outcome(os.rename, name, b"x"),
        outcome(os.rename, b"x", name),
        outcome(os.link, name, b"linked"),
        outcome(os.unlink, name),
        outcome(os.mkdir, name),
        outcome(os.symlink, b"target", name),
        outcome(os.rmdir, name),
        outcome(os.symlink, name, b"link"),
        outcome(lambda: os.readlink(b"link").decode("latin-1")),
        outcome(os.lstat, b"missing" + name) if len(name) > 255 else "short",
    ]


@case("name: case and normal form are kept apart")
def name_forms(world: World) -> Any:
    for name in ("a", "A", "\u00e4", "a\u0308"):
        put(name, name.encode())
    return sorted(ascii(name) for name in os.listdir("."))


PATHS = {
    "double slash": "directory//file",
    "dots": "./directory/../directory/./file",
    "dot-dot through a link": "to-sub/../file",
    "4095 bytes": "directory/" + "./" * 2040 + "file/"[:4],
    "over 4096 bytes": "directory/" + "./" * 2048 + "file",
    "dot-dot above the top of it all": "../" * 60 + "etc/passwd",
    "file as a directory": "directory/file/../file",
    "missing as a directory": "missing/../directory/file",
    "trailing dot": "directory/file/.",
    "absolute link": "to-etc/passwd",
}


@rows("path", PATHS)
def paths(world: World, path: str) -> Any:
    os.makedirs("directory/sub")
    put("directory/file", b"inside")
    os.symlink("directory/sub", "to-sub")
    os.symlink("/etc", "to-etc")
    found = outcome(content, path)
    return found if len(found) < 30 else found[:4]


@rows("path", {f"a chain of {length} links": length for length in (1, 39, 40, 41)})
def link_chain(world: World, length: int) -> Any:
    put("link0", b"end")
    for number in range(length):
        os.symlink(f"link{number}", f"link{number + 1}")
    return outcome(content, f"link{length}")


@case("path: a tree deeper than any path can be")
def deep_tree(world: World) -> Any:
    name = "d" * 200
    top = os.open(".", os.O_RDONLY)
    for _ in range(30):
        os.mkdir(name)
        os.chdir(name)
    put("file", b"at the bottom")
    results: list[Any] = [content("file"), os.listdir("."), len(os.getcwd()) > 4096]
    os.rename("file", "renamed")
    results += [look("renamed"), look("../" * 30 + name)[0]]
    os.setxattr("renamed", "user.depth", b"30")
    os.chmod("renamed", 0o600)
    results += [look("renamed"), outcome(os.stat, "/".join([name] * 30))]
    for _ in range(30):
        os.chdir("..")
    os.fchdir(top)
    os.close(top)
    return results


DIRECTORY_TARGETS = (
    *("missing", "file", "empty", "full", "to-full", "to-missing", "fifo", "missing/x", "file/x", ".", "..", "empty/."),
    *("full/..", "empty/", "full/", "to-full/", "to-missing/", "missing/", "file/", "/", ""),
)


@rows("directory", {f"mkdir, rmdir, unlink {name!r}": name for name in DIRECTORY_TARGETS})
def directories(world: World, name: str) -> Any:
    def make() -> None:
        put("file")
        os.mkdir("empty")
        os.mkdir("full")
        put("full/inside")
        os.symlink("full", "to-full")
        os.symlink("nowhere", "to-missing")
        os.mkfifo("fifo")

    results = []
    for call in (os.mkdir, os.rmdir, os.unlink):
        where = f"for-{call.__name__}"
        os.mkdir(where)
        os.chdir(where)
        make()
        results.append([outcome(call, name), tree()])
        os.chdir("..")
    return results


@case("directory: link counts")
def directory_links(world: World) -> Any:
    counts = [os.stat(".").st_nlink]
    for name in ("a", "b", "a/c"):
        os.mkdir(name)
        counts += [os.stat(".").st_nlink, os.stat("a").st_nlink]
    os.rmdir("a/c")
    os.rmdir("b")
    return [*counts, os.stat("a").st_nlink, os.stat(".").st_nlink]


@case("directory: a removed working directory")
def removed_cwd(world: World) -> Any:
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")
    return [
        outcome(os.getcwd),
        outcome(os.listdir, "."),
        look("."),
        outcome(touch_open, "new", os.O_CREAT | os.O_WRONLY),
        outcome(os.mkdir, "new"),
        look("..")[:2],
        outcome(os.rmdir, "."),
        outcome(os.chmod, ".", 0o700),
        look("."),
    ]


LINKS: dict[str, tuple[str, str]] = {
    "file": ("file", "new"),
    "onto a file": ("file", "second"),
    "onto itself": ("file", "file"),
    "onto a directory": ("file", "directory"),
    "directory": ("directory", "new"),
    "missing": ("missing", "new"),
    "into a directory": ("file", "directory/new"),
    "into a missing directory": ("file", "missing/new"),
    "below a file": ("file", "second/new"),
    "fifo": ("fifo", "new"),
    "trailing slash": ("file/", "new"),
    "to a trailing slash": ("file", "new/"),
    "dangling link": ("dangling", "new"),
    "link to a directory": ("to-directory", "new"),
    "onto a link": ("file", "dangling"),
    "empty name": ("file", ""),
}


@rows("link", {f"{title}, {follow=}": (*pair, follow) for title, pair in LINKS.items() for follow in (False, True)})
def links(world: World, row: tuple[str, str, bool]) -> Any:
    source, target, follow = row
    put("file", b"1")
    put("second", b"22")
    os.mkdir("directory")
    os.mkfifo("fifo")
    os.symlink("nowhere", "dangling")
    os.symlink("directory", "to-directory")
    here = os.open(".", os.O_RDONLY)
    result = outcome(os.link, source, target, src_dir_fd=here, dst_dir_fd=here, follow_symlinks=follow)
    os.close(here)
    return [result, tree(), look("file"), look("fifo"), look("dangling")]


@case("link: many links of one file")
def many_links(world: World) -> Any:
    put("file", b"1")
    for number in range(100):
        os.link("file", f"link{number}")
    counts = [os.stat("file").st_nlink, os.stat("link50").st_nlink]
    os.unlink("file")
    for number in range(0, 100, 2):
        os.unlink(f"link{number}")
    opened("link51", os.O_WRONLY, lambda fd: os.write(fd, b"2"))
    return [*counts, os.stat("link99").st_nlink, content("link1")]


@case("link: an open file without a name cannot get one")
def link_nameless(world: World) -> Any:
    put("file")
    fd = os.open("file", os.O_RDWR)
    os.unlink("file")
    result = outcome(os.link, f"/proc/self/fd/{fd}", "back", follow_symlinks=True, src_dir_fd=fd)
    os.close(fd)
    return [result, os.listdir(".")]


SYMLINKS = {
    "relative": b"a/b",
    "absolute": b"/a/b",
    "up": b"../../..",
    "empty": b"",
    "4095 bytes": b"t" * 4095,
    "4096 bytes": b"t" * 4096,
    "60 bytes": b"t" * 60,
    "59 bytes": b"t" * 59,
    "invalid UTF-8": b"\xff\xfe",
    "slashes": b"//a///",
}


@rows("symlink", SYMLINKS)
def symlinks(world: World, target: bytes) -> Any:
    made = outcome(os.symlink, target, b"link")
    found = outcome(os.readlink, b"link")
    return [made, found == target, outcome(look, "link"), outcome(os.symlink, target, b"link")]


@case("symlink: what readlink refuses")
def readlink_errors(world: World) -> Any:
    put("file")
    os.mkdir("directory")
    return [outcome(os.readlink, name) for name in ("file", "directory", "missing", ".", "", "file/x")]


@case("symlink: lchmod and lutimes and rights")
def symlink_attributes(world: World) -> Any:
    os.symlink("target", "link")
    with world.acting(world.other):
        read = outcome(os.readlink, "link")
    return [read, outcome(os.chmod, "link", 0o600, follow_symlinks=True), look("link")]


@case("names: a child process sees the same")
def child_sees(world: World) -> Any:
    put("file")
    return [in_child(lambda: os.stat("file")), in_child(lambda: os.stat("missing")), in_child(lambda: os.rmdir("file"))]
