"""Listings, also while names come and go."""

import ctypes
import os
from typing import Any

from ctxfs.files.passthrough_calls import read_entries
from tests.posix.table import case, rows
from tests.posix.world import World, opened, put


def long_name(kind: str, number: int) -> str:
    """Long names, so that few fill the buffer of a listing several times."""
    return f"{kind}{number:0200}"


def make_names(kind: str, count: int, directory: str = ".") -> list[str]:
    made = [long_name(kind, number) for number in range(count)]
    for name in made:
        os.mknod(f"{directory}/{name}")
    return made


def listed(fd: int) -> list[str]:
    found = []
    while entries := read_entries(fd):
        found += [entry.name.decode() for entry in entries]
    return found


@rows("listing", {f"{count} names": count for count in (0, 1, 100, 700)})
def listing(world: World, count: int) -> Any:
    os.mkdir("directory")
    made = make_names("name", count, "directory")
    found = opened("directory", os.O_RDONLY, listed)
    return [len(found), sorted(found) == sorted([".", "..", *made])]


@case("listing: kinds of entries")
def entry_kinds(world: World) -> Any:
    put("file")
    os.mkdir("directory")
    os.symlink("directory", "link")
    os.mkfifo("fifo")
    with os.scandir(".") as entries:
        return sorted(
            [entry.name, entry.is_file(follow_symlinks=False), entry.is_dir(follow_symlinks=False), entry.is_symlink()]
            for entry in entries
        )


@case("listing: while names go, each that stays comes once")
def listing_while_removing(world: World) -> Any:
    made = make_names("name", 400)
    fd = os.open(".", os.O_RDONLY)
    found: list[str] = []
    while entries := read_entries(fd):
        found += [entry.name.decode() for entry in entries]
        for name in made[::2]:
            if os.path.lexists(name):
                os.unlink(name)
    os.close(fd)
    kept = set(made[1::2])
    return [sum(name in kept for name in found), kept <= set(found), len(found) == len(set(found))]


@case("listing: while names come, each that was there comes once")
def listing_while_adding(world: World) -> Any:
    made = make_names("name", 300)
    fd = os.open(".", os.O_RDONLY)
    found: list[str] = []
    turn = 0
    while entries := read_entries(fd):
        found += [entry.name.decode() for entry in entries]
        make_names(f"more{turn}", 20)
        turn += 1
    os.close(fd)
    return [sum(name in made for name in found), set(made) <= set(found), len(found) == len(set(found))]


@case("listing: removing everything that is listed, as rm does")
def listing_rm(world: World) -> Any:
    make_names("name", 400)
    with os.scandir(".") as entries:
        for entry in entries:
            os.unlink(entry.name)
    return os.listdir(".")


@case("listing: renaming everything that is listed ends")
def listing_rename(world: World) -> Any:
    os.mkdir("directory")
    make_names("name", 200, "directory")
    renamed = 0
    with os.scandir("directory") as entries:
        for entry in entries:
            os.rename(entry.path, f"directory/new-{entry.name}")
            renamed += 1
            if renamed > 5000 or len(entry.name) > 230:
                break
    return [renamed >= 200, len(os.listdir("directory"))]


@case("listing: positions lead back to where they were taken")
def listing_positions(world: World) -> Any:
    make_names("name", 350)
    fd = os.open(".", os.O_RDONLY)
    entries = []
    while more := read_entries(fd):
        entries += more
    agree = []
    for at in (0, 1, 5, 249, 300, 340):
        os.lseek(fd, entries[at].position, os.SEEK_SET)
        agree.append(read_entries(fd)[0].name == entries[at + 1].name)
    os.close(fd)
    return agree


@case("listing: rewinding shows what is new")
def listing_rewind(world: World) -> Any:
    put("one")
    fd = os.open(".", os.O_RDONLY)
    before = sorted(listed(fd))
    put("two")
    os.unlink("one")
    os.lseek(fd, 0, os.SEEK_SET)
    after = sorted(listed(fd))
    os.close(fd)
    return [before, after]


@case("listing: with a small buffer")
def listing_small(world: World) -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    for number in range(50):
        os.mknod(f"a-longer-name-{number:040}")
    fd = os.open(".", os.O_RDONLY)
    buffer = ctypes.create_string_buffer(200)
    total = 0
    while (size := libc.getdents64(fd, buffer, 200)) > 0:
        total += buffer.raw[:size].count(b"a-longer-name")
    small = libc.getdents64(opened(".", os.O_RDONLY, os.dup), buffer, 10)
    os.close(fd)
    return [total, size, small, ctypes.get_errno()]
