"""Mappings: what they show, what they change, what rights they need."""

import mmap
import os
from typing import Any

from tests.posix.cases_data import digest
from tests.posix.table import case
from tests.posix.world import World, content, in_child, opened, outcome, put


def mapped(name: str, flags: int, protection: int, use: Any, size: int = 8192) -> Any:
    kind = os.O_RDWR if flags == mmap.MAP_SHARED and protection & mmap.PROT_WRITE else os.O_RDONLY
    fd = os.open(name, kind)
    try:
        with mmap.mmap(fd, size, flags, protection) as area:
            return use(area, fd)
    finally:
        os.close(fd)


BOTH = mmap.PROT_READ | mmap.PROT_WRITE


@case("mmap: shared stores are seen by read and stay")
def map_shared(world: World) -> Any:
    put("file", b"a" * 8192)

    def use(area: mmap.mmap, fd: int) -> list[Any]:
        area[0:3] = b"XYZ"
        area[5000:5003] = b"123"
        area.flush()
        return [os.pread(fd, 5, 0).decode(), os.pread(fd, 5, 4999).decode()]

    seen = mapped("file", mmap.MAP_SHARED, BOTH, use)
    return [seen, digest("file"), os.stat("file").st_size]


@case("mmap: stores through two links of one file")
def map_links(world: World) -> Any:
    put("file", b"a" * 8192)
    os.link("file", "linked")

    def use(area: mmap.mmap, fd: int) -> str:
        area[0:3] = b"XYZ"
        return content("linked")[:5]

    return mapped("file", mmap.MAP_SHARED, BOTH, use)


@case("mmap: private stores stay private")
def map_private(world: World) -> Any:
    put("file", b"a" * 8192)

    def use(area: mmap.mmap, fd: int) -> str:
        area[0:3] = b"XYZ"
        return os.pread(fd, 5, 0).decode()

    return [mapped("file", mmap.MAP_PRIVATE, BOTH, use), content("file")[:3]]


@case("mmap: writes and truncation are seen in the mapping")
def map_sees_writes(world: World) -> Any:
    put("file", b"a" * 8192)

    def use(area: mmap.mmap, fd: int) -> list[Any]:
        os.pwrite(fd, b"NEW", 10)
        os.ftruncate(fd, 100)
        return [area[8:15].decode(), area[95:105].decode("latin-1")]

    return mapped("file", mmap.MAP_SHARED, BOTH, use)


@case("mmap: stores behind the end are lost")
def map_tail(world: World) -> Any:
    put("file", b"a" * 4096)

    def use(area: mmap.mmap, fd: int) -> None:
        os.ftruncate(fd, 100)
        area[98:104] = b"XXYYYY"

    mapped("file", mmap.MAP_SHARED, BOTH, use, 4096)
    os.truncate("file", 200)
    return content("file")[95:]


@case("mmap: a page behind the end is SIGBUS")
def map_bus_error(world: World) -> Any:
    put("file", b"a" * 8192)

    def use(area: mmap.mmap, fd: int) -> int:
        os.ftruncate(fd, 10)
        return area[5000]

    return in_child(lambda: mapped("file", mmap.MAP_SHARED, BOTH, use))


@case("mmap: needs the handle's rights")
def map_rights(world: World) -> Any:
    put("file", b"a" * 4096)

    def attempt(flags: int, kind: int, protection: int) -> Any:
        return opened("file", flags, lambda fd: outcome(lambda: mmap.mmap(fd, 4096, kind, protection).close()))

    return [
        attempt(os.O_RDONLY, mmap.MAP_SHARED, BOTH),
        attempt(os.O_RDONLY, mmap.MAP_PRIVATE, BOTH),
        attempt(os.O_WRONLY, mmap.MAP_SHARED, mmap.PROT_WRITE),
        attempt(os.O_WRONLY, mmap.MAP_PRIVATE, mmap.PROT_READ),
        attempt(os.O_RDWR, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_EXEC),
    ]


@case("mmap: outlives close and unlink")
def map_outlives(world: World) -> Any:
    put("file", b"a" * 8192)
    fd = os.open("file", os.O_RDWR)
    area = mmap.mmap(fd, 8192)
    os.close(fd)
    os.unlink("file")
    area[0:3] = b"XYZ"
    area.flush()
    result = [area[0:5].decode(), area[8000:8003].decode()]
    area.close()
    return [result, os.listdir(".")]


@case("mmap: appending handles do not move what is written back")
def map_append(world: World) -> Any:
    put("file", b"a" * 4096)
    append = os.open("file", os.O_RDWR | os.O_APPEND)
    area = mmap.mmap(append, 4096)
    area[0:3] = b"XYZ"
    os.write(append, b"end")
    area.flush()
    area.close()
    os.close(append)
    found = content("file")
    return [len(found), found[:4], found[-4:]]
