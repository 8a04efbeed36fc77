"""Files in use without a name, FIFOs, sockets, device nodes, locks."""

import fcntl
import os
import socket
import stat
import struct
from typing import Any

from tests.posix.table import case, rows
from tests.posix.world import FOREIGN, MEMBER, World, content, in_child, lock, look, opened, outcome, put, touch_open


def nameless(data: bytes = b"content") -> int:
    put("gone", data)
    fd = os.open("gone", os.O_RDWR)
    os.unlink("gone")
    return fd


@case("nameless: reads, writes and grows")
def nameless_data(world: World) -> Any:
    fd = nameless()
    os.pwrite(fd, b"C", 0)
    os.pwrite(fd, b"end", 9000)
    result = [os.pread(fd, 7, 0).decode(), look(fd), os.listdir(".")]
    os.ftruncate(fd, 2)
    result += [look(fd), os.pread(fd, 7, 0).decode()]
    os.fsync(fd)
    os.close(fd)
    return result


@case("nameless: attributes change")
def nameless_attributes(world: World) -> Any:
    fd = nameless()
    os.fchmod(fd, 0o600)
    os.fchown(fd, -1, MEMBER if world.uid else FOREIGN)
    os.utime(fd, ns=(5, 7))
    os.setxattr(fd, "user.note", b"value")
    found = os.fstat(fd)
    result = [look(fd), found.st_atime_ns, found.st_mtime_ns, os.listxattr(fd), os.getxattr(fd, "user.note").decode()]
    os.removexattr(fd, "user.note")
    result.append(os.listxattr(fd))
    os.close(fd)
    return result


@case("nameless: can be opened again through its handle")
def nameless_reopen(world: World) -> Any:
    fd = nameless()
    path = f"/proc/self/fd/{fd}"
    result = [
        outcome(content, path),
        outcome(opened, path, os.O_WRONLY | os.O_TRUNC, lambda again: os.write(again, b"new")),
        os.pread(fd, 10, 0).decode(),
        look(fd),
    ]
    os.close(fd)
    return result


@case("nameless: only a path handle is left")
def nameless_path(world: World) -> Any:
    put("file", b"data")
    fd = os.open("file", os.O_PATH)
    os.unlink("file")
    result = [look(fd), outcome(content, f"/proc/self/fd/{fd}")]
    os.close(fd)
    return result


@case("nameless: a new file of the same name is another one")
def nameless_namesake(world: World) -> Any:
    fd = nameless(b"old")
    put("gone", b"new")
    result = [os.pread(fd, 5, 0).decode(), content("gone"), os.fstat(fd).st_ino != os.stat("gone").st_ino]
    os.unlink("gone")
    result += [os.pread(fd, 5, 0).decode(), look(fd)]
    os.close(fd)
    return result


@case("nameless: one link of several")
def nameless_link(world: World) -> Any:
    put("one", b"data")
    os.link("one", "two")
    fd = os.open("one", os.O_RDWR)
    os.unlink("one")
    os.write(fd, b"DATA")
    result = [look(fd), content("two"), look("two")]
    os.unlink("two")
    result += [look(fd), os.pread(fd, 4, 0).decode()]
    os.close(fd)
    return result


@case("nameless: many at once")
def nameless_many(world: World) -> Any:
    handles = [nameless(str(number).encode()) for number in range(40)]
    result = [os.pread(fd, 5, 0).decode() for fd in handles] + [os.fstat(fd).st_nlink for fd in handles]
    for fd in handles:
        os.close(fd)
    return result


@case("nameless: symlink and fifo by a path handle")
def nameless_special(world: World) -> Any:
    os.symlink("target", "link")
    os.mkfifo("fifo")
    handles = [os.open(name, os.O_PATH | os.O_NOFOLLOW) for name in ("link", "fifo")]
    os.unlink("link")
    os.unlink("fifo")
    result = [look(fd) for fd in handles] + [os.readlink("", dir_fd=handles[0])]
    for fd in handles:
        os.close(fd)
    return result


@case("nameless: a directory with an open handle")
def nameless_directory(world: World) -> Any:
    os.mkdir("gone")
    fd = os.open("gone", os.O_RDONLY)
    os.rmdir("gone")
    result = [look(fd), outcome(os.fchmod, fd, 0o700), look(fd), outcome(os.fsync, fd), outcome(os.listdir, fd)]
    os.close(fd)
    return result


@case("fifo: carries bytes between processes")
def fifo_bytes(world: World) -> Any:
    os.mkfifo("fifo")
    pid = os.fork()
    if pid == 0:
        opened("fifo", os.O_WRONLY, lambda fd: os.write(fd, b"through"))
        os._exit(0)
    result = content("fifo")
    os.waitpid(pid, 0)
    return [result, look("fifo")]


@case("fifo: without the other end")
def fifo_alone(world: World) -> Any:
    os.mkfifo("fifo")
    return [
        outcome(touch_open, "fifo", os.O_WRONLY | os.O_NONBLOCK),
        outcome(touch_open, "fifo", os.O_RDONLY | os.O_NONBLOCK),
        outcome(os.mkfifo, "fifo"),
        outcome(opened, "fifo", os.O_RDWR, lambda fd: os.write(fd, b"x")),
        outcome(os.truncate, "fifo", 0),
        outcome(opened, "fifo", os.O_RDWR, lambda fd: os.lseek(fd, 0, os.SEEK_SET)),
    ]


@case("fifo: links and renames lead to the same pipe")
def fifo_names(world: World) -> Any:
    os.mkfifo("fifo")
    os.link("fifo", "linked")
    reader = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
    os.rename("fifo", "renamed")
    opened("linked", os.O_WRONLY, lambda fd: os.write(fd, b"1"))
    opened("renamed", os.O_WRONLY, lambda fd: os.write(fd, b"2"))
    result = os.read(reader, 10).decode()
    os.close(reader)
    return result


@case("socket: serves, by any of its names")
def socket_serves(world: World) -> Any:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        server.listen()
        os.link("socket", "linked")
        os.rename("socket", "renamed")
        answers = []
        for name in ("linked", "renamed", "socket"):
            with socket.socket(socket.AF_UNIX) as client:
                answers.append(outcome(client.connect, name))
        again = socket.socket(socket.AF_UNIX)
        answers += [outcome(again.bind, "linked"), look("renamed")]
        again.close()
        return answers


@case("socket: left behind")
def socket_left(world: World) -> Any:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    with socket.socket(socket.AF_UNIX) as client:
        refused = outcome(client.connect, "socket")
    os.unlink("socket")
    return [refused, os.listdir("."), outcome(touch_open, "socket", os.O_RDONLY)]


@case("socket: needs write permission to connect")
def socket_rights(world: World) -> Any:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        server.listen()
        results = []
        for mode in (0o777, 0o755, 0o700):
            os.chmod("socket", mode)
            with world.acting(world.other), socket.socket(socket.AF_UNIX) as client:
                results.append(outcome(client.connect, "socket"))
        return results


NODES = {
    "regular": stat.S_IFREG,
    "no kind": 0,
    "fifo": stat.S_IFIFO,
    "socket": stat.S_IFSOCK,
    "directory": stat.S_IFDIR,
    "symlink": stat.S_IFLNK,
    "character device": stat.S_IFCHR,
    "block device": stat.S_IFBLK,
}


@rows("mknod", {f"{title} {mode:o}": (kind, mode) for title, kind in NODES.items() for mode in (0o600, 0o666)})
def nodes(world: World, row: tuple[int, int]) -> Any:
    kind, mode = row
    return [outcome(os.mknod, "node", kind | mode, os.makedev(1, 3)), outcome(look, "node"), outcome(os.mknod, "node")]


SHARED, EXCLUSIVE, RELEASE = fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN


@case("lock: flock between handles")
def flock(world: World) -> Any:
    put("file")
    one, two = os.open("file", os.O_RDWR), os.open("file", os.O_RDONLY)
    steps = [
        (one, SHARED),
        (two, SHARED),
        (one, EXCLUSIVE),
        (two, RELEASE),
        (one, EXCLUSIVE),
        (two, SHARED),
        (one, SHARED),
        (two, SHARED),
        (one, RELEASE),
        (two, EXCLUSIVE),
    ]
    results = [outcome(lock, fd, kind) for fd, kind in steps]
    os.close(two)
    results.append(outcome(lock, one, EXCLUSIVE))
    os.close(one)
    return results


@case("lock: flock of a directory, and by every link of a file")
def flock_others(world: World) -> Any:
    put("file")
    os.link("file", "linked")
    os.mkdir("directory")
    handles = [os.open(name, os.O_RDONLY) for name in ("file", "linked", "directory", "directory")]
    results = [outcome(lock, fd, EXCLUSIVE) for fd in handles]
    for fd in handles:
        os.close(fd)
    return results


@case("lock: a child holds its parent's flock")
def flock_child(world: World) -> Any:
    put("file")
    fd = os.open("file", os.O_RDWR)
    lock(fd, EXCLUSIVE)

    def elsewhere() -> None:
        lock(os.open("file", os.O_RDWR), EXCLUSIVE)

    results = [in_child(lambda: lock(fd, EXCLUSIVE)), in_child(elsewhere)]
    os.close(fd)
    return [*results, in_child(elsewhere)]


def region(kind: int, start: int, length: int) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)


@case("lock: fcntl regions between processes")
def record_locks(world: World) -> Any:
    put("file", b"x" * 100)
    fd = os.open("file", os.O_RDWR)
    fcntl.fcntl(fd, fcntl.F_SETLK, region(fcntl.F_WRLCK, 10, 10))
    fcntl.fcntl(fd, fcntl.F_SETLK, region(fcntl.F_RDLCK, 50, 10))

    def attempt(kind: int, start: int, length: int) -> str:
        return in_child(lambda: fcntl.fcntl(fd, fcntl.F_SETLK, region(kind, start, length)) and None)

    results = [
        attempt(fcntl.F_WRLCK, 0, 10),
        attempt(fcntl.F_WRLCK, 5, 10),
        attempt(fcntl.F_RDLCK, 15, 1),
        attempt(fcntl.F_RDLCK, 55, 1),
        attempt(fcntl.F_WRLCK, 55, 1),
        attempt(fcntl.F_WRLCK, 20, 30),
        attempt(fcntl.F_WRLCK, 0, 0),
    ]
    os.close(os.open("file", os.O_RDONLY))
    results.append(attempt(fcntl.F_WRLCK, 10, 10))
    os.close(fd)
    return results


@case("lock: who holds a region")
def record_lock_query(world: World) -> Any:
    put("file")
    fd = os.open("file", os.O_RDWR)
    free = fcntl.fcntl(fd, fcntl.F_GETLK, region(fcntl.F_WRLCK, 0, 0))
    wrong = opened(
        "file", os.O_RDONLY, lambda read: outcome(fcntl.fcntl, read, fcntl.F_SETLK, region(fcntl.F_WRLCK, 0, 0))
    )
    os.close(fd)
    return [struct.unpack("hhqqi4x", free)[0] == fcntl.F_UNLCK, wrong]


@case("lock: open file description locks")
def description_locks(world: World) -> Any:
    put("file")
    one, two = os.open("file", os.O_RDWR), os.open("file", os.O_RDWR)
    set_lock = 37
    results = [
        outcome(lambda: fcntl.fcntl(one, set_lock, region(fcntl.F_WRLCK, 0, 10)) and None),
        outcome(lambda: fcntl.fcntl(two, set_lock, region(fcntl.F_WRLCK, 5, 10)) and None),
        outcome(lambda: fcntl.fcntl(two, set_lock, region(fcntl.F_WRLCK, 10, 10)) and None),
    ]
    os.close(one)
    results.append(outcome(lambda: fcntl.fcntl(two, set_lock, region(fcntl.F_WRLCK, 0, 10)) and None))
    os.close(two)
    return results
