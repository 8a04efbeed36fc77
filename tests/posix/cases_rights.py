"""Who may do what: modes by user, sticky directories, chmod and chown, setuid and setgid, setgid directories."""

import itertools
import mmap
import os
import stat
import subprocess
from collections.abc import Callable
from typing import Any

from tests.posix.table import case, rows
from tests.posix.world import (
    FOREIGN,
    MEMBER,
    World,
    content,
    in_child,
    look,
    mode_of,
    opened,
    outcome,
    put,
    touch_open,
    tree,
)

OWNERS = ("own", "group", "other")


def give(name: str, owner: str, world: World, mode: int) -> None:
    """Makes a file or directory one's own, one's group's, or another's."""
    uid = world.uid if owner == "own" else world.other
    gid = {"own": world.uid, "group": MEMBER, "other": FOREIGN}[owner]
    with world.acting(world.uid if owner == "own" else 0):
        os.chown(name, uid, gid, follow_symlinks=False)
        os.chmod(name, mode)


FILE_ACTIONS: dict[str, Callable[[str], Any]] = {
    "read": content,
    "write": lambda name: touch_open(name, os.O_WRONLY),
    "read and write": lambda name: touch_open(name, os.O_RDWR),
    "truncate": lambda name: os.truncate(name, 3),
    "open truncating": lambda name: touch_open(name, os.O_WRONLY | os.O_TRUNC),
    "append": lambda name: touch_open(name, os.O_WRONLY | os.O_APPEND),
    "access": lambda name: [os.access(name, what, effective_ids=True) for what in (os.R_OK, os.W_OK, os.X_OK)],
    "touch": os.utime,
    "set times": lambda name: os.utime(name, (1, 2)),
    "chmod": lambda name: os.chmod(name, stat.S_IMODE(os.stat(name).st_mode)),
    "set attribute": lambda name: os.setxattr(name, "user.note", b"value"),
    "get attribute": lambda name: os.getxattr(name, "user.note").decode(),
    "list attributes": os.listxattr,
    "remove attribute": lambda name: os.removexattr(name, "user.note"),
    "link": lambda name: os.link(name, "linked"),
    "path": lambda name: touch_open(name, os.O_PATH),
    "no atime": lambda name: touch_open(name, os.O_RDONLY | os.O_NOATIME),
    "rename": lambda name: os.rename(name, "renamed"),
}
FILE_MODES = (0o000, 0o400, 0o200, 0o040, 0o060, 0o004, 0o002, 0o006, 0o644, 0o070, 0o777)


@rows("file rights", {f"{owner} {mode:04o}": (owner, mode) for owner, mode in itertools.product(OWNERS, FILE_MODES)})
def file_rights(world: World, row: tuple[str, int]) -> Any:
    owner, mode = row
    put("file", b"content", 0o666)
    give("file", owner, world, mode)
    return {name: outcome(action, "file") for name, action in FILE_ACTIONS.items()} | {"after": tree_names()}


def tree_names() -> list[str]:
    return sorted(os.listdir("."))


DIRECTORY_ACTIONS: dict[str, Callable[[], Any]] = {
    "list": lambda: sorted(os.listdir("directory")),
    "scan": lambda: sorted(entry.name for entry in os.scandir("directory") if entry.is_file()),
    "look up": lambda: look("directory/file"),
    "look up missing": lambda: look("directory/missing"),
    "read below": lambda: content("directory/file"),
    "create": lambda: touch_open("directory/new", os.O_WRONLY | os.O_CREAT),
    "create existing": lambda: touch_open("directory/file", os.O_WRONLY | os.O_CREAT),
    "mkdir": lambda: os.mkdir("directory/sub"),
    "mkdir existing": lambda: os.mkdir("directory/file"),
    "symlink": lambda: os.symlink("x", "directory/link"),
    "fifo": lambda: os.mkfifo("directory/fifo"),
    "rename within": lambda: os.rename("directory/file", "directory/renamed"),
    "rename out": lambda: os.rename("directory/second", "second"),
    "link out": lambda: os.link("directory/third", "third"),
    "link in": lambda: os.link("mine", "directory/mine"),
    "unlink": lambda: os.unlink("directory/third"),
    "unlink missing": lambda: os.unlink("directory/missing"),
    "rmdir": lambda: os.rmdir("directory/empty"),
    "enter": lambda: opened("directory", os.O_PATH | os.O_DIRECTORY, lambda fd: look(fd)[0]),
    "dot-dot": lambda: look("directory/..")[0],
    "touch": lambda: os.utime("directory"),
    "set attribute": lambda: os.setxattr("directory", "user.note", b"value"),
    "rename itself": lambda: os.rename("directory", "moved"),
}
DIRECTORY_MODES = (0o000, 0o400, 0o100, 0o200, 0o500, 0o300, 0o700, 0o070, 0o050, 0o007, 0o003, 0o755, 0o777)


@rows(
    "directory rights",
    {f"{owner} {mode:04o}": (owner, mode) for owner, mode in itertools.product(OWNERS, DIRECTORY_MODES)},
)
def directory_rights(world: World, row: tuple[str, int]) -> Any:
    owner, mode = row
    put("mine")
    os.makedirs("directory/empty")
    for name in ("file", "second", "third"):
        put(f"directory/{name}", mode=0o644)
    give("directory", owner, world, mode)
    return {name: outcome(action) for name, action in DIRECTORY_ACTIONS.items()}


STICKY = {
    f"{directory}'s directory, {file}'s file": (directory, file)
    for directory, file in itertools.product(("own", "other", "root"), repeat=2)
}


@rows("sticky", STICKY)
def sticky(world: World, row: tuple[str, str]) -> Any:
    uids = {"own": world.uid, "other": world.other, "root": 0}
    directory, file = row
    os.mkdir("directory")
    put("mine", b"mine")
    with world.acting(0):
        for name in ("one", "two", "three"):
            put(f"directory/{name}", name.encode(), 0o666)
            os.chown(f"directory/{name}", uids[file], uids[file])
        os.mkdir("directory/sub")
        os.chown("directory/sub", uids[file], uids[file])
        os.chown("directory", uids[directory], uids[directory])
        os.chmod("directory", 0o1777)
    return [
        outcome(os.unlink, "directory/one"),
        outcome(os.rename, "directory/two", "directory/renamed"),
        outcome(os.rename, "mine", "directory/three"),
        outcome(os.rmdir, "directory/sub"),
        outcome(touch_open, "directory/three", os.O_WRONLY | os.O_CREAT),
        outcome(touch_open, "directory/new", os.O_WRONLY | os.O_CREAT),
        tree("directory"),
    ]


CHMOD = {
    f"{owner} {mode:04o}": (owner, mode) for owner, mode in itertools.product(OWNERS, (0o600, 0o2755, 0o4711, 0o7777))
}


@rows("chmod", CHMOD)
def chmod(world: World, row: tuple[str, int]) -> Any:
    owner, mode = row
    put("file", mode=0o644)
    os.mkdir("directory")
    give("file", owner, world, 0o644)
    give("directory", owner, world, 0o755)
    return [
        outcome(os.chmod, "file", mode),
        outcome(os.chmod, "directory", mode),
        look("file"),
        look("directory"),
    ]


@rows(
    "chmod",
    {f"setgid for {title}": gid for title, gid in {"a group of one's own": MEMBER, "a foreign group": FOREIGN}.items()},
)
def chmod_setgid(world: World, gid: int) -> Any:
    put("file")
    with world.acting(0):
        os.chown("file", world.uid, gid)
    return [outcome(os.chmod, "file", 0o2755), look("file")]


@case("chmod: of a symlink is of its target")
def chmod_link(world: World) -> Any:
    put("file", mode=0o600)
    os.symlink("file", "link")
    os.symlink("missing", "dangling")
    os.chmod("link", 0o640)
    return [look("file"), look("link"), outcome(os.chmod, "dangling", 0o600)]


NEW_OWNERS = ("none", "own", "other", "root")
NEW_GROUPS = ("none", "own", "member", "foreign")
CHOWN_MODES = (0o755, 0o6755, 0o6744)


def chown_ids(world: World, uid: str, gid: str) -> tuple[int, int]:
    uids = {"none": -1, "own": world.uid, "other": world.other, "root": 0}
    gids = {"none": -1, "own": world.uid, "member": MEMBER, "foreign": FOREIGN}
    return uids[uid], gids[gid]


CHOWN = {
    f"{owner} {mode:04o} to {uid}:{gid}": (owner, mode, uid, gid)
    for owner, mode, uid, gid in itertools.product(OWNERS, CHOWN_MODES, NEW_OWNERS, NEW_GROUPS)
}


@rows("chown", CHOWN)
def chown(world: World, row: tuple[str, int, str, str]) -> Any:
    owner, mode, uid, gid = row
    put("file")
    give("file", owner, world, mode)
    return [outcome(os.chown, "file", *chown_ids(world, uid, gid)), look("file")]


@case("chown: of directories keeps setgid")
def chown_directory(world: World) -> Any:
    os.mkdir("directory")
    os.chmod("directory", 0o2775)
    return [outcome(os.chown, "directory", -1, MEMBER if world.uid else FOREIGN), look("directory")]


@case("chown: of a symlink itself")
def chown_link(world: World) -> Any:
    put("file")
    os.symlink("file", "link")
    gid = MEMBER if world.uid else FOREIGN
    return [outcome(os.lchown, "link", -1, gid), look("link"), look("file")]


@case("chown: through handles")
def chown_handle(world: World) -> Any:
    put("file", mode=0o6755)
    os.mkdir("directory")
    gid = MEMBER if world.uid else FOREIGN
    opened("file", os.O_RDONLY, lambda fd: os.fchown(fd, -1, gid))
    opened("directory", os.O_RDONLY, lambda fd: os.fchown(fd, -1, gid))
    return [look("file"), look("directory")]


PRIVILEGED = (0o4755, 0o2755, 0o6755, 0o6777, 0o2745, 0o2666, 0o6666, 0o4644)
CHANGES: dict[str, Callable[[str], Any]] = {
    "write": lambda name: opened(name, os.O_WRONLY, lambda fd: os.write(fd, b"x")),
    "write nothing": lambda name: opened(name, os.O_WRONLY, lambda fd: os.write(fd, b"")),
    "append": lambda name: opened(name, os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"x")),
    "truncate": lambda name: os.truncate(name, 2),
    "truncate to the same size": lambda name: os.truncate(name, 7),
    "ftruncate": lambda name: opened(name, os.O_WRONLY, lambda fd: os.ftruncate(fd, 2)),
    "open truncating": lambda name: touch_open(name, os.O_WRONLY | os.O_TRUNC),
    "open for writing": lambda name: touch_open(name, os.O_WRONLY),
    "touch": os.utime,
    "link": lambda name: os.link(name, "linked"),
    "rename": lambda name: os.rename(name, "renamed"),
    "O_SYNC write": lambda name: opened(name, os.O_WRONLY | os.O_SYNC, lambda fd: os.write(fd, b"x")),
}
CLEARING = {
    f"{change} of {owner} {mode:04o}": (owner, mode, change)
    for owner, mode, change in itertools.product(("own", "other"), PRIVILEGED, CHANGES)
}


@rows("setid", CLEARING)
def clearing(world: World, row: tuple[str, int, str]) -> Any:
    owner, mode, change = row
    put("file", b"content")
    give("file", owner, world, mode)
    result = outcome(CHANGES[change], "file")
    return [result, mode_of("renamed" if change == "rename" and result == "ok" else "file")]


@case("setid: mapped writes")
def clearing_mapped(world: World) -> Any:
    put("file", b"x" * 4096, 0o6755)
    fd = os.open("file", os.O_RDWR)
    area = mmap.mmap(fd, 4096)
    area[0:3] = b"XYZ"
    area.flush()
    area.close()
    os.close(fd)
    return [look("file"), content("file")[:4]]


@case("setid: a script and a program run, without other rights")
def executing(world: World) -> Any:
    put("script", b"#!/bin/sh\nexit 0\n", 0o755)
    put("plain", b"#!/bin/sh\nexit 0\n", 0o644)
    with open("/bin/true", "rb") as program:
        put("program", program.read(), 0o755)
    return {name: os.spawnv(os.P_WAIT, f"./{name}", [name]) for name in ("script", "plain", "program")}


@case("setid: a running program cannot be written")
def text_busy(world: World) -> Any:
    with open("/bin/sleep", "rb") as program:
        put("program", program.read(), 0o755)
    with subprocess.Popen(["./program", "30"]) as running:
        results = [outcome(touch_open, "program", os.O_WRONLY), outcome(os.truncate, "program", 1)]
        running.kill()
    return results


@case("setid: a write takes capabilities away")
def clearing_capability(world: World) -> Any:
    put("file")
    with world.acting(0):
        os.setxattr("file", "security.capability", bytes.fromhex("0100000200040000" + "00" * 12))
    before = os.listxattr("file")
    opened("file", os.O_WRONLY, lambda fd: os.write(fd, b"x"))
    return [before, os.listxattr("file")]


INHERIT_GROUPS = {"a group of one's own": MEMBER, "a foreign group": FOREIGN}


@rows("setgid directory", {f"of {title}": gid for title, gid in INHERIT_GROUPS.items()})
def setgid_directory(world: World, gid: int) -> Any:
    os.mkdir("directory")
    with world.acting(0):
        os.chown("directory", world.uid, gid)
        os.chmod("directory", 0o2777)
    os.chdir("directory")
    touch_open("file", os.O_WRONLY | os.O_CREAT, 0o644)
    touch_open("program", os.O_WRONLY | os.O_CREAT, 0o2755)
    touch_open("setgid", os.O_WRONLY | os.O_CREAT, 0o2644)
    os.mkdir("sub", 0o700)
    os.mkdir("sub/sub")
    os.mkfifo("fifo")
    os.symlink("target", "link")
    os.mknod("node", 0o2755)
    put("../outside")
    os.link("../outside", "linked")
    os.rename("../outside", "moved")
    names = ("file", "program", "setgid", "sub", "sub/sub", "fifo", "link", "node", "linked", "moved")
    return {name: look(name) for name in names}


@case("rights: supplementary groups count")
def supplementary(world: World) -> Any:
    put("file", mode=0o640)
    with world.acting(0):
        os.chown("file", world.other, MEMBER)
    return [outcome(content, "file"), outcome(touch_open, "file", os.O_WRONLY)]


@case("rights: a change of mode counts at once for another user")
def change_counts(world: World) -> Any:
    put("file", mode=0o600)
    results = []
    for mode in (0o600, 0o644, 0o600, 0o666):
        os.chmod("file", mode)
        with world.acting(world.other):
            results += [outcome(content, "file"), outcome(touch_open, "file", os.O_WRONLY)]
    return results


@case("rights: a change of a directory's mode counts at once for what is below")
def directory_change_counts(world: World) -> Any:
    os.makedirs("directory/sub")
    put("directory/sub/file")
    results = []
    for mode in (0o755, 0o700, 0o711, 0o744, 0o755):
        os.chmod("directory", mode)
        with world.acting(world.other):
            results += [outcome(content, "directory/sub/file"), outcome(os.listdir, "directory")]
    return results


@case("rights: losing the capability drops a handle's no right")
def handle_passed_on(world: World) -> Any:
    put("file", b"secret", 0o600)
    fd = os.open("file", os.O_RDWR)
    with world.acting(world.other):
        results = [os.pread(fd, 10, 0).decode(), os.pwrite(fd, b"S", 0), outcome(os.fchmod, fd, 0o666)]
    os.close(fd)
    return [results, look("file")]


@case("rights: another's hard link is refused, as the system protects them")
def protected_link(world: World) -> Any:
    put("file", mode=0o600)
    give("file", "other", world, 0o600)
    return [outcome(os.link, "file", "linked"), in_child(lambda: None)]
