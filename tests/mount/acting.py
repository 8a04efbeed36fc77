"""What tests of writing do with a mount, in the words of spec 1: sessions, single calls, refusals."""

import contextlib
import ctypes
import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxfs import control
from tests.mounting import PATIENCE_S, RunningMount
from tests.people import ROOT, Person

NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4

_LIBC = ctypes.CDLL(None, use_errno=True)
_numbers = itertools.count(1)


def agent_directory(ctx: Path, person: Person = ROOT, agent: str = "coder") -> Path:
    """``home/<uid>/agent/<agent>``, made by that person if it is not there."""
    path = ctx / "home" / str(person.uid) / "agent" / agent
    person.does(path.mkdir, exist_ok=True)
    return path


def new_session(ctx: Path, person: Person = ROOT, agent: str = "coder") -> Path:
    """An empty session under a name of its own."""
    path = agent_directory(ctx, person, agent) / "session" / f"s{next(_numbers)}"
    person.does(path.mkdir)
    return path


def entries(session: Path) -> int:
    """n, the number of entries of its log."""
    return int(os.getxattr(session, "user.ctx.n"))


def figures(mount: RunningMount) -> dict[str, Any]:
    """What the daemon says of itself (``mountctl status --json``), once its FUSE thread has the time."""
    while True:
        try:
            return control.ask(mount.files.socket, "status", PATIENCE_S)
        except control.ControlError as error:
            if "timed out" not in str(error):
                raise


def message(text: str = "hello") -> bytes:
    """A valid line of messages.jsonl."""
    return b'{"role":"user","content":"%s"}\n' % text.encode()


def event(text: str = "hello") -> bytes:
    """A valid line of events.jsonl."""
    return b'{"type":"delta","run":"r1","text":"%s"}\n' % text.encode()


def write_once(path: Path, data: bytes, flags: int = os.O_WRONLY | os.O_APPEND) -> int:
    """One ``open``, one ``write``, one ``close``; what the write returned."""
    with opened(path, flags) as descriptor:
        return os.write(descriptor, data)


def renameat2(old: Path, new: Path, flags: int) -> None:
    """rename with ``NOREPLACE``, ``EXCHANGE`` or ``WHITEOUT``; 0 is a plain rename."""
    if _LIBC.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextlib.contextmanager
def opened(path: Path, flags: int, mode: int = 0o600) -> Iterator[int]:
    """A descriptor; closing it must succeed."""
    descriptor = os.open(path, flags, mode)
    try:
        yield descriptor
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(descriptor)
        raise
    os.close(descriptor)


def target(session: Path, name: str) -> Path:
    """A file of a session, or ``index/…`` beside it."""
    return session.parent / name if name.startswith("index/") else session / name


def save(path: Path, content: bytes, temporary: str = "tmp-save") -> None:
    """A temporary beside the file, renamed onto it."""
    beside = path.parent / temporary
    with opened(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
        os.write(descriptor, content)
        os.fsync(descriptor)
    beside.rename(path)


@contextlib.contextmanager
def refused(number: int) -> Iterator[None]:
    """The body must fail with exactly this errno."""
    with pytest.raises(OSError) as caught:
        yield
    got = caught.value.errno
    assert got == number, f"{errno.errorcode.get(got or 0, got)} instead of {errno.errorcode[number]}"
