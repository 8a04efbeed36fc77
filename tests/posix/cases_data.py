"""Bytes: reading, writing, appending, truncating, holes, mappings."""

import ctypes
import fcntl
import hashlib
import os
import random
import resource
import signal
from typing import Any

from tests.posix.table import case, rows
from tests.posix.world import World, checked, content, in_child, libc, look, opened, outcome, put, touch_open

GIB = 1 << 30


def digest(name: str) -> str:
    with open(name, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


READS = {
    "at the beginning": (4, 0),
    "in the middle": (4, 3),
    "over the end": (100, 8),
    "at the end": (4, 10),
    "behind the end": (4, 1000),
    "nothing": (0, 0),
    "far behind the end": (4, 1 << 40),
    "at a negative offset": (4, -1),
    "a megabyte": (1 << 20, 0),
}


@rows("read", READS)
def read_at(world: World, row: tuple[int, int]) -> Any:
    put("file", b"0123456789")
    return opened("file", os.O_RDONLY, lambda fd: outcome(lambda: os.pread(fd, *row).decode()))


WRITES = {
    "at the beginning": (b"AB", 0),
    "at the end": (b"AB", 10),
    "over the end": (b"ABCD", 8),
    "behind the end": (b"AB", 20),
    "pages behind the end": (b"AB", 10000),
    "nothing": (b"", 0),
    "nothing behind the end": (b"", 100),
    "at a negative offset": (b"A", -1),
    "at the biggest offset": (b"A", (1 << 63) - 1),
    "behind 16 TiB": (b"A", 1 << 45),
}


@rows("write", WRITES)
def write_at(world: World, row: tuple[bytes, int]) -> Any:
    put("file", b"0123456789")
    result = opened("file", os.O_RDWR, lambda fd: outcome(os.pwrite, fd, *row))
    return [result, look("file"), content("file")]


@rows(
    "write", {f"{size} bytes at {at}": (size, at) for size in (1, 4095, 4097, 131073, 1500000) for at in (0, 1, 4096)}
)
def write_sizes(world: World, row: tuple[int, int]) -> Any:
    size, at = row
    data = random.Random(size).randbytes(size)
    written = opened("file", os.O_WRONLY | os.O_CREAT, lambda fd: os.pwrite(fd, data, at))
    return [written, look("file"), digest("file")]


@case("write: random pieces equal a model in memory")
def write_model(world: World) -> Any:
    chance = random.Random(7)
    model = bytearray()
    with open("file", "w+b", buffering=0) as file:
        for _ in range(200):
            at, data = chance.randrange(40000), chance.randbytes(chance.randrange(1, 6000))
            if chance.random() < 0.1:
                os.truncate("file", at)
                del model[at:]
                model.extend(bytes(at - len(model)))
                continue
            os.pwrite(file.fileno(), data, at)
            model.extend(bytes(max(0, at + len(data) - len(model))))
            model[at : at + len(data)] = data
            if os.pread(file.fileno(), 70000, 0) != model:
                return "differs"
    return [len(model), digest("file") == hashlib.sha256(model).hexdigest()]


@case("write: several handles see each other at once")
def write_handles(world: World) -> Any:
    put("file", b"")
    one, two = os.open("file", os.O_RDWR), os.open("file", os.O_RDWR)
    os.write(one, b"abc")
    seen = [os.read(two, 10).decode(), os.fstat(two).st_size]
    os.ftruncate(two, 1)
    seen += [os.pread(one, 10, 0).decode(), os.fstat(one).st_size, os.write(one, b"d"), content("file")]
    os.close(one)
    os.close(two)
    return seen


@case("write: vectors")
def write_vectors(world: World) -> Any:
    def use(fd: int) -> list[Any]:
        buffers = [bytearray(2), bytearray(5)]
        return [
            os.writev(fd, [b"ab", b"", b"cde"]),
            os.pwritev(fd, [b"X", b"Y"], 1),
            os.preadv(fd, buffers, 0),
            [buffer.decode() for buffer in buffers],
        ]

    return opened("file", os.O_RDWR | os.O_CREAT, use)


@case("write: with the wrong handle")
def wrong_handles(world: World) -> Any:
    put("file", b"data")
    os.mkdir("directory")
    return [
        opened("file", os.O_RDONLY, lambda fd: outcome(os.write, fd, b"x")),
        opened("file", os.O_WRONLY, lambda fd: outcome(os.read, fd, 1)),
        opened("file", os.O_RDONLY, lambda fd: outcome(os.ftruncate, fd, 1)),
        opened("file", os.O_PATH, lambda fd: outcome(os.read, fd, 1)),
        opened("directory", os.O_RDONLY, lambda fd: outcome(os.read, fd, 1)),
        opened("directory", os.O_RDONLY, lambda fd: outcome(os.ftruncate, fd, 0)),
        opened("directory", os.O_RDONLY, lambda fd: outcome(os.write, fd, b"x")),
    ]


@case("append: goes to the end, whatever the position")
def append_position(world: World) -> Any:
    put("file", b"0123")

    def use(fd: int) -> list[Any]:
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, b"4")
        position = os.lseek(fd, 0, os.SEEK_CUR)
        return [position, os.pwrite(fd, b"5", 0), os.fstat(fd).st_size]

    return [opened("file", os.O_WRONLY | os.O_APPEND, use), content("file")]


@case("append: two handles take turns")
def append_turns(world: World) -> Any:
    handles = [os.open("file", os.O_WRONLY | os.O_APPEND | os.O_CREAT) for _ in range(3)]
    for turn in range(30):
        os.write(handles[turn % 3], f"{turn},".encode())
    for fd in handles:
        os.close(fd)
    return content("file")


@case("append: after the file was truncated")
def append_truncated(world: World) -> Any:
    def use(fd: int) -> None:
        os.write(fd, b"long before")
        os.truncate("file", 2)
        os.write(fd, b"!")

    opened("file", os.O_WRONLY | os.O_APPEND | os.O_CREAT, use)
    return content("file")


@case("append: O_APPEND set and cleared with fcntl")
def append_fcntl(world: World) -> Any:
    put("file", b"0123")

    def use(fd: int) -> None:
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        os.write(fd, b"end")
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)
        os.pwrite(fd, b"S", 0)

    opened("file", os.O_WRONLY, use)
    return content("file")


@case("append: two processes do not lose lines")
def append_processes(world: World) -> Any:
    put("file", b"")

    def lines(tag: bytes) -> None:
        with open("file", "ab", buffering=0) as file:
            for number in range(100):
                file.write(tag * 50 + b"%d\n" % number)

    pid = os.fork()
    if pid == 0:
        lines(b"b")
        os._exit(0)
    lines(b"a")
    os.waitpid(pid, 0)
    found = content("file").splitlines()
    return [len(found), sorted(found) == sorted(f"{tag * 50}{number}" for tag in "ab" for number in range(100))]


@rows(
    "truncate", {str(size): size for size in (-1, 0, 1, 5, 10, 11, 4096, 4097, 100000, 5 * GIB, 1 << 45, (1 << 63) - 1)}
)
def truncate(world: World, size: int) -> Any:
    put("file", b"0123456789")
    put("second", b"0123456789")
    results = [
        outcome(os.truncate, "file", size),
        opened("second", os.O_RDWR, lambda fd: outcome(os.ftruncate, fd, size)),
        look("file"),
        look("second"),
    ]
    small = os.stat("file").st_size < GIB
    return [*results, content("file") if small else "big", os.stat("file").st_blocks < 100]


@case("truncate: what was cut off does not come back")
def truncate_regrow(world: World) -> Any:
    put("file", b"x" * 10000)
    os.truncate("file", 10)
    os.truncate("file", 6000)
    opened("file", os.O_WRONLY, lambda fd: os.pwrite(fd, b"end", 9000))
    found = content("file")
    return [len(found), found.count("x"), found.count("\0"), found[-3:]]


@case("truncate: what it cannot be done to")
def truncate_others(world: World) -> Any:
    os.mkdir("directory")
    os.mkfifo("fifo")
    os.symlink("missing", "link")
    put("locked", mode=0o444)
    return [
        outcome(os.truncate, name, 0) for name in ("directory", "fifo", "link", "missing", "locked", "locked/x", "")
    ]


@case("truncate: through a symlink")
def truncate_link(world: World) -> Any:
    put("file", b"0123")
    os.symlink("file", "link")
    os.truncate("link", 2)
    return content("file")


@case("O_TRUNC: other handles see it at once")
def trunc_visible(world: World) -> Any:
    put("file", b"0123456789" * 1000)
    fd = os.open("file", os.O_RDONLY)
    before = len(os.pread(fd, 20000, 0))
    touch_open("file", os.O_WRONLY | os.O_TRUNC)
    after = [os.pread(fd, 20000, 0).decode(), os.fstat(fd).st_size]
    os.close(fd)
    return [before, after]


@case("sparse: a file bigger than 4 GiB")
def sparse(world: World) -> Any:
    def use(fd: int) -> list[Any]:
        os.pwrite(fd, b"start", 0)
        os.pwrite(fd, b"far", 5 * GIB)
        os.fsync(fd)
        return [
            os.fstat(fd).st_size,
            os.fstat(fd).st_blocks,
            os.pread(fd, 10, 5 * GIB - 3).decode(),
            os.pread(fd, 10, GIB).decode(),
            os.lseek(fd, 0, os.SEEK_END),
        ]

    return opened("file", os.O_RDWR | os.O_CREAT, use)


@case("sparse: SEEK_HOLE and SEEK_DATA")
def seek_holes(world: World) -> Any:
    def use(fd: int) -> list[Any]:
        os.pwrite(fd, b"start", 0)
        os.pwrite(fd, b"end", GIB)
        os.fsync(fd)
        return [os.lseek(fd, 0, os.SEEK_HOLE), os.lseek(fd, 8192, os.SEEK_DATA)]

    return opened("file", os.O_RDWR | os.O_CREAT, use)


@case("sparse: seeking behind the end")
def seek_errors(world: World) -> Any:
    put("file", b"0123")

    def use(fd: int) -> list[Any]:
        return [
            outcome(os.lseek, fd, 4, os.SEEK_DATA),
            outcome(os.lseek, fd, -1, os.SEEK_SET),
            os.lseek(fd, 100, os.SEEK_SET),
            os.read(fd, 1).decode(),
            os.fstat(fd).st_size,
        ]

    return opened("file", os.O_RDONLY, use)


@rows("fallocate", {"allocate": 0, "keep size": 1, "punch a hole": 3, "zero": 0x10})
def fallocate(world: World, mode: int) -> Any:
    put("file", b"x" * 10000)

    def use(fd: int) -> int:
        return checked(libc.fallocate(fd, mode, ctypes.c_long(0), ctypes.c_long(20000)))

    return [opened("file", os.O_RDWR, lambda fd: outcome(use, fd)), os.stat("file").st_size]


@case("fallocate: posix_fallocate")
def posix_fallocate(world: World) -> Any:
    put("file", b"data")
    return [opened("file", os.O_RDWR, lambda fd: outcome(os.posix_fallocate, fd, 0, 9000)), os.stat("file").st_size]


@case("copy: sendfile, copy_file_range and splice")
def copies(world: World) -> Any:
    data = random.Random(1).randbytes(300000)
    put("source", data)
    source = os.open("source", os.O_RDONLY)
    targets = [os.open(name, os.O_RDWR | os.O_CREAT) for name in ("sent", "copied", "spliced")]
    sent = os.sendfile(targets[0], source, 0, len(data))
    copied = os.copy_file_range(source, targets[1], len(data), 0, 0)
    out, into = os.pipe()
    spliced = os.splice(source, into, 5000, offset_src=100)
    os.splice(out, targets[2], spliced)
    for fd in (source, *targets, out, into):
        os.close(fd)
    return [sent, copied, spliced, [digest(name) for name in ("source", "sent", "copied", "spliced")]]


@case("limits: RLIMIT_FSIZE")
def size_limit(world: World) -> Any:
    def run() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        fd = os.open("file", os.O_WRONLY | os.O_CREAT)
        os.write(fd, b"x" * 2000)
        os.write(fd, b"x")

    return [in_child(run), os.stat("file").st_size]


@case("sync: fsync, fdatasync, of files and directories")
def syncs(world: World) -> Any:
    put("file")

    def use(fd: int) -> list[Any]:
        return [outcome(os.fsync, fd), outcome(os.fdatasync, fd)]

    return [opened("file", os.O_RDWR, use), opened(".", os.O_RDONLY, use), opened("file", os.O_RDONLY, use)]


@case("advice: posix_fadvise and readahead")
def advice(world: World) -> Any:
    put("file", b"x" * 100000)

    def use(fd: int) -> list[Any]:
        return [outcome(os.posix_fadvise, fd, 0, 0, advice) for advice in range(6)]

    return opened("file", os.O_RDONLY, use)
