"""What the cases of the POSIX table act with: their own directory, a user to be, and results that compare.

A case runs with its own fresh directory as the working directory, as the table's user (effective ids and groups;
root has all capabilities, others none), with umask 022. What it returns must be JSON and must not depend on where
it ran: no times, devices or inode numbers, but what they say (changed, equal). An ``OSError`` it raises is its result.
"""

import ctypes
import errno
import fcntl
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

MEMBER = 3000
"""A group that every user of the table is in."""
FOREIGN = 3001
"""A group that none of them but root is in."""
LIMIT_SECONDS = 60
KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}

PR_SET_DUMPABLE = 4
_COARSE_CLOCK = 5
libc = ctypes.CDLL(None, use_errno=True)


class NotApplicable(Exception):
    """The case needs another user, and this run has one only (a mount of an ordinary user)."""


class World:
    """Who acts, and who else there is."""

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.other = 1001 if uid == 1002 else 1002

    @contextmanager
    def acting(self, uid: int) -> Iterator[None]:
        """Another user for the time of the block; 0 is root."""
        before = os.geteuid()
        become(uid)
        try:
            yield
        finally:
            become(before)


def confine(uid: int) -> None:
    """Gives root up for good: one user from here on, as if started by it."""
    os.setgroups([uid, MEMBER])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # What changed its ids may not look into its own /proc otherwise.
    checked(libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))


def become(uid: int) -> None:
    """Takes a user's effective ids and groups, with or without root's capabilities."""
    if uid == os.geteuid():
        return
    if os.getuid() != 0:
        raise NotApplicable
    os.seteuid(0)
    os.setgroups([] if uid == 0 else [uid, MEMBER])
    os.setegid(uid)
    os.seteuid(uid)


def outcome(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What a call returns, "ok" for nothing, or the name of its error."""
    try:
        result = call(*args, **options)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok" if result is None else result


def checked(result: int) -> int:
    """The result of a C function, which may have failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def put(name: str | bytes, content: bytes = b"content", mode: int = 0o644) -> None:
    """Makes a file with exactly this mode."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, content)
    os.fchmod(fd, mode)
    os.close(fd)


def content(name: str | bytes) -> str:
    """The first MiB of a file."""
    with open(name, "rb") as file:
        return file.read(1 << 20).decode("latin-1")


def opened(name: str | bytes, flags: int, use: Callable[[int], Any], mode: int = 0o666) -> Any:
    """Opens, calls, closes; the result of the call."""
    fd = os.open(name, flags, mode)
    try:
        return use(fd)
    finally:
        os.close(fd)


def touch_open(name: str | bytes, flags: int, mode: int = 0o666) -> None:
    opened(name, flags, lambda fd: None, mode)


def mode_of(name: str | bytes) -> str:
    return oct(stat.S_IMODE(os.lstat(name).st_mode))


def look(name: str | bytes | int) -> list[Any]:
    """Kind, mode, links, owner, group; size if it is a file."""
    found = os.fstat(name) if isinstance(name, int) else os.lstat(name)
    kind = KINDS[stat.S_IFMT(found.st_mode)]
    size = [found.st_size] if kind in ("file", "symlink") else []
    return [kind, oct(stat.S_IMODE(found.st_mode)), found.st_nlink, found.st_uid, found.st_gid, *size]


def tree(top: str = ".") -> dict[str, str]:
    """Every name below a directory, with its kind, and a file's size or a link's target."""
    found = {}
    with os.scandir(top) as entries:
        for entry in entries:
            if entry.is_symlink():
                found[entry.path] = f"symlink {os.readlink(entry.path)}"
            elif entry.is_dir():
                found |= {entry.path: "directory", **tree(entry.path)}
            else:
                status = entry.stat()
                found[entry.path] = f"{KINDS[stat.S_IFMT(status.st_mode)]} {status.st_size}"
    return dict(sorted(found.items()))


def next_tick() -> None:
    """Returns once the clock that stamps files has moved on."""
    start = time.clock_gettime_ns(_COARSE_CLOCK)
    while time.clock_gettime_ns(_COARSE_CLOCK) == start:
        pass


def in_child(call: Callable[[], Any]) -> str:
    """How a forked child ends that makes a call: "ok", the error's name, or the signal's."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(LIMIT_SECONDS)
        result = outcome(call)
        names = sorted(errno.errorcode.values())
        os._exit(200 if result not in names else names.index(result))
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    code = os.waitstatus_to_exitcode(status)
    return "ok" if code == 200 else sorted(errno.errorcode.values())[code]


def lock(fd: int, kind: int) -> None:
    """flock without waiting."""
    fcntl.flock(fd, kind | fcntl.LOCK_NB)
