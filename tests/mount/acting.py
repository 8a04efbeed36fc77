"""What tests of a mount do with it, in the words of spec 1: sessions, refused calls, other users."""

import contextlib
import errno
import itertools
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ctxfs import control
from tests.mounting import RunningMount

T = TypeVar("T")

STRANGER = 4242
OTHER_STRANGER = 4243

_numbers = itertools.count(1)


def agent_directory(mount: Path, uid: int | None = None, agent: str = "coder") -> Path:
    """``home/<uid>/agent/<agent>``, made if it is not there (by its own uid)."""
    path = mount / "home" / str(os.getuid() if uid is None else uid) / "agent" / agent
    as_uid(uid, lambda: path.mkdir(exist_ok=True))
    return path


def new_session(mount: Path, uid: int | None = None, name: str | None = None) -> Path:
    """An empty session under a name of its own."""
    path = agent_directory(mount, uid) / "session" / (name or f"s{next(_numbers)}")
    as_uid(uid, path.mkdir)
    return path


def entries(session: Path) -> int:
    """n, the number of entries of its log."""
    return int(os.getxattr(session, "user.ctx.n"))


def figures(mount: RunningMount) -> dict[str, Any]:
    """What the daemon says of itself (``mountctl status --json``)."""
    return control.ask(mount.files.socket, "status", 10.0)


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


@contextlib.contextmanager
def refused(number: int) -> Iterator[None]:
    """The body must fail with exactly this errno."""
    with pytest.raises(OSError) as caught:
        yield
    got = caught.value.errno
    assert got == number, f"{errno.errorcode.get(got or 0, got)} instead of {errno.errorcode[number]}"


def as_uid(uid: int | None, action: Callable[[], T]) -> T:
    """What ``action`` returns or raises (``OSError``) in a process of another uid; None: here."""
    if uid is None or uid == os.getuid():
        return action()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        _act_as(uid, action, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    result, error = pickle.loads(answer)
    if error is not None:
        raise error
    value: T = result
    return value


def _act_as(uid: int, action: Callable[[], object], write_end: int) -> None:
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        answer: tuple[object, OSError | None] = (action(), None)
    except OSError as error:
        answer = (None, error)
    except BaseException as error:
        answer = (None, OSError(errno.ENOTRECOVERABLE, repr(error)))
    os.write(write_end, pickle.dumps(answer))
    os._exit(0)
