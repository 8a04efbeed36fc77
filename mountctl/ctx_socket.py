"""A client of ``agent/ctx.sock``: what file operations cannot do (spec 1.9, docs/ctx-socket.md).

Blocking. Requests may be sent ahead of their answers, which come in the same order.
"""

import contextlib
import os
import socket
from collections.abc import Iterable, Iterator
from typing import Any

from backend.strict_json import compact, lenient_object
from mountctl import places
from mountctl.cli import DENIED, ERROR, UNAVAILABLE, Failure

_LONGEST_PATH = 107


class Refused(Failure):
    """An error frame; ``code`` is its errno name."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message, DENIED if code in ("EACCES", "EPERM") else ERROR)
        self.code = code


class CtxSocket:
    """A connection; ``name`` is what messages call it."""

    def __init__(self, connected: socket.socket, name: str = "agent/ctx.sock") -> None:
        self._socket = connected
        self._name = name
        self._answers = connected.makefile("rb")

    def send(self, request: dict[str, Any], lines: Iterable[bytes] = ()) -> None:
        """Sends a request, and the lines that follow it (``Failure``: the daemon is gone)."""
        with _gone_is_a_failure(self._name):
            self._socket.sendall(b"".join(part + b"\n" for part in (compact(request), *lines)))

    def receive(self) -> dict[str, Any]:
        """The next answer (``Refused``: it is an error; ``Failure``: the daemon is gone)."""
        return accepted(self.receive_frame())

    def receive_frame(self) -> dict[str, Any]:
        """The next frame, whatever it says (``Failure``: the daemon is gone)."""
        with _gone_is_a_failure(self._name):
            line = self._answers.readline()
        if not line.endswith(b"\n"):
            raise Failure(f"the daemon closed {self._name}: `mountctl status` shows whether it works", UNAVAILABLE)
        return lenient_object(line)

    def frames(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The answers to a request of many, without the ``end`` (errors as ``receive``)."""
        self.send(request)
        while (answer := self.receive()).get("type") != "end":
            yield answer

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


def accepted(frame: dict[str, Any]) -> dict[str, Any]:
    """The frame, unless it is an error (``Refused``)."""
    if frame.get("type") == "error":
        raise Refused(str(frame.get("code")), str(frame.get("message")))
    return frame


@contextlib.contextmanager
def _gone_is_a_failure(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failure(f"{name}: {error.strerror}", UNAVAILABLE) from error


def connect() -> CtxSocket | None:
    """A connection to the mount's daemon, None where the mount has no such socket."""
    return connect_to("agent/ctx")


def connect_to(agent: str) -> CtxSocket | None:
    """A connection to a socket of the mount, ``agent/NAME`` or ``model/PROVIDER/NAME``; None where there is none."""
    directory, _, name = f"{places.root()}/{agent}.sock".rpartition("/")
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(directory, name) as short:
            connected.connect(f"{short}/{name}")
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        connected.close()
        return None
    except BaseException:
        connected.close()
        raise
    return CtxSocket(connected, f"{agent}.sock")


def connection() -> contextlib.AbstractContextManager[CtxSocket]:
    """A connection for what nothing else can do (``Failure``: there is no mount, or it has no such socket)."""
    text = f"{places.root()}/agent/ctx.sock does not answer: the daemon's log says why"
    return connection_to("agent/ctx", Failure(text, UNAVAILABLE))


@contextlib.contextmanager
def connection_to(agent: str, absence: Failure) -> Iterator[CtxSocket]:
    """As ``connect_to``; where there is none, the failure that there is no mount, or ``absence``."""
    found = connect_to(agent)
    if found is None:
        try:
            os.stat(f"{places.root()}/status")
        except OSError as error:
            raise places.no_mount(error) from error
        raise absence
    with contextlib.closing(found):
        yield found


@contextlib.contextmanager
def _short(directory: str, name: str) -> Iterator[str]:
    """A path of a directory that is short enough for the address of a socket of that name in it."""
    if len(os.fsencode(f"{directory}/{name}")) <= _LONGEST_PATH:
        yield directory
        return
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def place(space: str | None) -> dict[str, Any]:
    """The fields of a request that say whose sessions: the caller's home (``$CTX_HOME``), or a shared space."""
    if space is not None:
        places.space(space)
        return {"space": space}
    owner = os.path.basename(os.path.realpath(places.home()))
    return {"home": int(owner)} if owner.isdecimal() else {}


def knows(space: str | None) -> bool:
    """Whether ``place`` is where files are looked for: not with a ``$CTX_HOME`` of some other mount."""
    parent = os.path.dirname(os.path.realpath(places.home()))
    return space is not None or parent == os.path.realpath(f"{places.root()}/home")
