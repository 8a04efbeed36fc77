"""Sockets of the tree: ``agent/<name>.sock`` and ``model/<provider>/<model>.sock`` (spec 3.1).

A socket is in the tree while the daemon has one bound there, and is never stored. Binding makes its row: the kernel
sends MKNOD for a name that was announced with ``expect`` just before, and for no other (``EPERM``). The daemon removes
it by unlink(2), announced likewise with ``release``: so the kernel forgets the name at once, and it can be bound again.
FUSE thread only; ``ctxfs.sockets`` binds and serves them.
"""

import errno
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from pyfuse3 import FUSEError

from backend.errors import Missing
from ctxfs.files.directories import Caller, Found

if TYPE_CHECKING:
    from ctxfs.core import Core
    from ctxfs.subjects import Nothing, ProviderSubject

SUFFIX = ".sock"
PUBLIC, PRIVATE = 0o666, 0o600


class Address(msgspec.Struct, frozen=True):
    """Where a socket is: ``agent/<name>.sock``, or ``model/<provider>/<name>.sock``."""

    name: str
    provider: str | None = None

    @property
    def directory(self) -> str:
        """Relative to the mount."""
        return "agent" if self.provider is None else f"model/{self.provider}"

    @property
    def file(self) -> str:
        return self.name + SUFFIX


class Socket(msgspec.Struct, frozen=True):
    """One in the tree. ``uid`` None: everybody's (0666), else that user's alone (0600). ``mtime`` in ns."""

    id: int
    address: Address
    uid: int | None
    mtime: int

    @property
    def mode(self) -> int:
        return PUBLIC if self.uid is None else PRIVATE


class Sockets:
    """Those that are bound, and those that are about to be. Numbers are not used again while the mount lasts."""

    def __init__(self) -> None:
        self._expected: dict[Address, int | None] = {}
        self._bound: dict[Address, Socket] = {}
        self._released: set[Address] = set()
        self._by_id: dict[int, Socket] = {}
        self._last = 0

    def expect(self, address: Address, uid: int | None) -> None:
        """From now until it is made, or not expected any more, a socket may be bound there."""
        self._expected[address] = uid

    def unexpect(self, address: Address) -> None:
        self._expected.pop(address, None)

    def make(self, address: Address) -> Socket:
        """The row of a socket that was bound just now; ``EPERM`` unless it was expected."""
        if address not in self._expected:
            raise FUSEError(errno.EPERM)
        self._last += 1
        socket = Socket(self._last, address, self._expected.pop(address), time.time_ns())
        self._bound[address] = self._by_id[socket.id] = socket
        return socket

    def release(self, address: Address) -> bool:
        """From now on it may be removed; whether it is there."""
        if address in self._bound:
            self._released.add(address)
        return address in self._bound

    def remove(self, address: Address) -> None:
        """It is not there any more; ``EPERM`` unless it was released."""
        if address not in self._released:
            raise FUSEError(errno.EPERM)
        self._released.discard(address)
        del self._by_id[self._bound.pop(address).id]

    def find(self, address: Address) -> Socket | None:
        return self._bound.get(address)

    def by_id(self, number: int) -> Socket:
        """``Missing`` once it is removed."""
        socket = self._by_id.get(number)
        if socket is None:
            raise Missing("no such socket")
        return socket

    def within(self, provider: str | None) -> list[Socket]:
        """Those in ``agent/``, or in a provider's directory, by id."""
        return [socket for socket in self._by_id.values() if socket.address.provider == provider]


def find_socket(core: "Core", subject: "Nothing | ProviderSubject", name: str, _uid: int) -> int | None:
    socket = core.subjects.sockets.find(_address(subject, name))
    return None if socket is None else socket.id


def each_socket(core: "Core", subject: "Nothing | ProviderSubject", after: int, _uid: int) -> Iterable[Found]:
    sockets = core.subjects.sockets.within(_provider(subject))
    return [Found(one.id, one.address.file, one.id) for one in sockets if one.id > after]


def bind_socket(core: "Core", subject: "Nothing | ProviderSubject", name: str, caller: Caller) -> int:
    """MKNOD of a socket: what the daemon's own bind(2) does to the tree."""
    if caller.uid != core.mounter:
        raise FUSEError(errno.EPERM)
    return core.subjects.sockets.make(_address(subject, name)).id


def is_socket_name(name: str) -> bool:
    """Any name in front of ``.sock``: which are expected decides."""
    return name.endswith(SUFFIX)


def unlink_socket(core: "Core", subject: "Nothing | ProviderSubject", name: str, caller: Caller) -> None:
    """What the daemon's own unlink(2) does to the tree."""
    if caller.uid != core.mounter:
        raise FUSEError(errno.EPERM)
    core.subjects.sockets.remove(_address(subject, name))


def _address(subject: "Nothing | ProviderSubject", name: str) -> Address:
    return Address(name.removesuffix(SUFFIX), _provider(subject))


def _provider(subject: "Nothing | ProviderSubject") -> str | None:
    return getattr(subject, "provider", None)
