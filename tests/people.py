"""Other users for tests: calls made by a forked child with real uids, optionally in a chroot or a user namespace.

A mount's rights are the kernel's and the daemon's together, so only processes with real credentials prove them. The
child makes the call and sends back what it returned or raised; nothing of the parent changes. Needs root.
"""

import contextlib
import ctypes
import dataclasses
import errno
import functools
import os
import pickle
import subprocess
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWUSER = 0x10000000
_PR_SET_DUMPABLE = 4
# A child that another thread makes meanwhile would have the pipe too, and keep it open for as long as it lives.
_forking = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Person:
    """Who makes a call: real, effective and saved ids, supplementary groups, and where they are shut in.

    ``root`` is a directory to chroot to. ``maps_to_root``: in a user namespace of their own, as ``unshare -Ur``.
    """

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    root: Path | None = None
    maps_to_root: bool = False

    def does(self, call: Callable[..., T], *args: Any, **named: Any) -> T:
        """What ``call`` returns or raises when this person makes it, in a process of their own.

        Skips the test where a user namespace is needed and none may be made (in a chroot).
        """
        if self.maps_to_root and not may_have_namespaces():
            pytest.skip("no user namespace may be made here: in a chroot, or the kernel's settings forbid it")
        return self._forked(call, *args, **named)

    def _forked(self, call: Callable[..., T], *args: Any, **named: Any) -> T:
        with _forking:
            read_end, write_end = os.pipe()
            child = os.fork()
            if child:
                os.close(write_end)
        if child == 0:
            os.close(read_end)
            _report_and_exit(write_end, lambda: self._turned(call, *args, **named))
        with os.fdopen(read_end, "rb") as pipe:
            report = pipe.read()
        _, status = os.waitpid(child, 0)
        assert report, f"the child ended with status {status} and without a report"
        returned, value = pickle.loads(report)
        if not returned:
            raise value
        result: T = value
        return result

    def _turned(self, call: Callable[..., T], *args: Any, **named: Any) -> T:
        self.become()
        return call(*args, **named)

    def outcome(self, call: Callable[..., object], *args: Any, **named: Any) -> str:
        """``ok``, or the name of the errno with which the call failed."""
        return self.does(outcome, call, *args, **named)

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """The block has the person's effective ids and groups, which is what the peer of a socket sees."""
        groups = os.getgroups()
        os.setgroups(self.groups)
        os.setegid(self.gid)
        os.seteuid(self.uid)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)

    def become(self) -> None:
        """Turns this process into the person for good."""
        if self.root is not None:
            os.chroot(self.root)
            os.chdir("/")
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        if self.maps_to_root:
            self._enter_namespace()

    def _enter_namespace(self) -> None:
        own_proc()
        _checked(_LIBC.unshare(_CLONE_NEWUSER))
        for file, text in (("setgroups", "deny"), ("uid_map", f"0 {self.uid} 1"), ("gid_map", f"0 {self.gid} 1")):
            Path(f"/proc/self/{file}").write_text(text)


ROOT = Person(0, 0)
ALICE = Person(1001, 1001)
BOB = Person(1002, 1002)


def own_proc() -> None:
    """Makes this process's files in /proc its own again, as they are root's after its ids were changed."""
    _checked(_LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))


@functools.cache
def may_have_namespaces() -> bool:
    """Whether users may make user namespaces here."""
    try:
        Person(1001, 1001, maps_to_root=True)._forked(os.getpid)
    except PermissionError:
        return False
    return True


def outcome(call: Callable[..., object], *args: Any, **named: Any) -> str:
    """``ok``, or the name of the errno with which the call failed."""
    try:
        call(*args, **named)
    except OSError as error:
        assert error.errno is not None
        return errno.errorcode[error.errno]
    return "ok"


@contextlib.contextmanager
def chroot_with(path: Path, directory: Path) -> Iterator[Path]:
    """A directory to chroot to that has ``path`` bind-mounted at ``/ctx`` and nothing else."""
    target = directory / "ctx"
    target.mkdir(parents=True)
    subprocess.run(["mount", "--bind", path, target], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", target], check=True)


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _report_and_exit(pipe: int, call: Callable[[], object]) -> None:
    """Never returns: the child must not go on as a second copy of the tests."""
    try:
        try:
            report = pickle.dumps((True, call()))
        except BaseException as error:
            error.add_note("".join(traceback.format_exc()))
            report = pickle.dumps((False, error))
        with os.fdopen(pipe, "wb") as out:
            out.write(report)
    finally:
        os._exit(0)
