"""Kernel calls that may hang on a stopped or dead mount, each in a child process with a time limit.

A process stuck in such a call cannot always be killed; then it is left behind and ends when the mount does. Also run
as a script (``python -I -S probe.py CALL ARGUMENT…``), so it imports only the standard library.
Implements the "no hang, ever" of spec 4.6.
"""

import contextlib
import ctypes
import errno
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

TIMEOUT_S = 2.0
START_TIMEOUT_S = 20.0
MNT_DETACH = 2

_KILL_TIMEOUT_S = 0.5
_UMOUNT_NOFOLLOW = 8
_MS_PRIVATE_REC = (1 << 18) | (1 << 14)
_CLONE_NEWNS = 0x20000
_CONNECTIONS = "/sys/fs/fuse/connections"


class HungError(TimeoutError):
    """The call did not come back within its time limit."""


def answers(path: str, timeout_s: float = TIMEOUT_S) -> None:
    """Asks the file system itself, past every cache (statvfs): its ``OSError``, or ``HungError``."""
    _call("answers", path, timeout_s=timeout_s)


def is_empty(path: str, timeout_s: float = TIMEOUT_S) -> bool:
    """Whether a directory has no entries (``OSError``, ``HungError``)."""
    try:
        _call("empty", path, timeout_s=timeout_s)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            return False
        raise
    return True


def realpath(path: str, timeout_s: float = TIMEOUT_S) -> str:
    """The path with its links resolved, as far as it exists (``HungError``)."""
    return _call("realpath", path, timeout_s=timeout_s)


def umount(path: str, flags: int = 0, timeout_s: float = TIMEOUT_S) -> None:
    """umount2(2) as root; as a user ``fusermount3 -u``, since only that may (``OSError``, ``HungError``)."""
    if os.geteuid() == 0:
        _call("umount", path, str(flags), timeout_s=timeout_s)
    else:
        _fusermount(path, ["-z"] if flags & MNT_DETACH else [], timeout_s)


def connection(minor: int, timeout_s: float = TIMEOUT_S) -> int | None:
    """A descriptor for ``abort``; None where the caller may not, or there is no connection of this number.

    Where the control file system is not mounted, root mounts it for a child alone.
    """
    with contextlib.suppress(OSError):
        return os.open(f"{_CONNECTIONS}/{minor}/abort", os.O_WRONLY | os.O_CLOEXEC)
    if os.geteuid() != 0:
        return None
    ours, theirs = socket.socketpair()
    with ours, theirs:
        try:
            _call("connection", str(minor), str(theirs.fileno()), timeout_s=timeout_s, pass_fds=(theirs.fileno(),))
        except OSError:
            return None
        _, [descriptor], _, _ = socket.recv_fds(ours, 1, 1, socket.MSG_CMSG_CLOEXEC)
    return descriptor


def abort(connection: int) -> None:
    """Ends every call that waits on that very FUSE connection; one that is gone is no other, whoever has its number."""
    os.write(connection, b"1\n")


def _fusermount(path: str, options: list[str], timeout_s: float) -> None:
    command = ["fusermount3", "-u", *options, "--", path]
    environment = os.environ | {"LC_ALL": "C"}
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    with _reaped(child, path):
        assert child.stdout is not None
        message = _read_line(child.stdout.fileno(), START_TIMEOUT_S + timeout_s)
        child.wait(START_TIMEOUT_S)
    if child.returncode != 0:
        number = errno.EBUSY if b"busy" in message else errno.EPERM
        raise OSError(number, os.fsdecode(message).strip() or os.strerror(number), path)


def _call(name: str, *arguments: str, timeout_s: float, pass_fds: Sequence[int] = ()) -> str:
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, name, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=pass_fds,
    )
    with _reaped(child, arguments[0]):
        assert child.stdout is not None
        _read_line(child.stdout.fileno(), START_TIMEOUT_S)
        answer = _read_line(child.stdout.fileno(), timeout_s)
        child.wait(START_TIMEOUT_S)  # an answer is one, however long the machine takes to end who gave it
    number, separator, value = os.fsdecode(answer).partition(" ")
    if not separator:
        raise OSError(errno.EIO, f"the {name} call died", arguments[0])
    if number != "0":
        raise OSError(int(number), os.strerror(int(number)), arguments[0])
    return value


def _read_line(descriptor: int, timeout_s: float) -> bytes:
    """Bytes up to a NUL, or to the end of the pipe (``TimeoutError``)."""
    line, deadline = b"", time.monotonic() + timeout_s
    while not line.endswith(b"\0"):
        if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        if not (byte := os.read(descriptor, 1)):
            break
        line += byte
    return line.removesuffix(b"\0")


@contextlib.contextmanager
def _reaped(child: subprocess.Popen[bytes], what: str) -> Iterator[None]:
    """Ends a child that does not answer; one that cannot be killed is left behind."""
    try:
        yield
    except (TimeoutError, subprocess.TimeoutExpired):
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_KILL_TIMEOUT_S)
        raise HungError(errno.ETIMEDOUT, "no answer from the mount", what) from None
    finally:
        if child.stdout is not None:
            child.stdout.close()


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _do_answers(path: str) -> None:
    try:
        os.statvfs(path)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise


def _do_empty(path: str) -> None:
    with os.scandir(path) as entries:
        if next(entries, None) is not None:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))


def _do_umount(path: str, flags: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.umount2(os.fsencode(path), int(flags) | _UMOUNT_NOFOLLOW))


def _do_connection(minor: str, receiver: str) -> None:
    _mount_control()
    file = os.open(f"{_CONNECTIONS}/{minor}/abort", os.O_WRONLY)
    with socket.socket(fileno=int(receiver)) as to:
        socket.send_fds(to, [b"!"], [file])


def _mount_control() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_CLONE_NEWNS))
    _check(libc.mount(None, b"/", None, _MS_PRIVATE_REC, None))
    _check(libc.mount(b"fusectl", _CONNECTIONS.encode(), b"fusectl", 0, None))


_CALLS: dict[str, Callable[..., str | None]] = {
    "answers": _do_answers,
    "empty": _do_empty,
    "realpath": os.path.realpath,
    "umount": _do_umount,
    "connection": _do_connection,
}


def _main() -> str:
    """``0 VALUE``, or the errno and a space."""
    try:
        value = _CALLS[sys.argv[1]](*sys.argv[2:])
    except OSError as error:
        return f"{error.errno or errno.EIO} "
    return f"0 {value or ''}"


if __name__ == "__main__":
    os.write(1, b"\0")  # from here on the time counts: a busy machine is not a hung mount
    os.write(1, os.fsencode(_main()) + b"\0")
