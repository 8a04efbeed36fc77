"""What travels between the daemon, the launcher and its guardians (spec 3.6). Types and their coding only.

The daemon makes a pair of sockets for each run and hands one end to the launcher, with the agent's stdin and stdout;
the launcher forks a guardian, which has that end from then on. On it, one MessagePack value a packet:

    daemon   → ``Launch``                                         what to prepare
    guardian → ``Gathered`` …, then ``Prepared`` or ``Refused``   nothing runs yet
    daemon   → ``Go``                                             starts the agent
    daemon   → ``Signal`` …                                       to the agent's process group
    guardian → ``ExecFailed`` or ``Exited``                       the last word; every process of the run is gone

The end of either side ends it all: a guardian whose daemon is gone kills what it started.
"""

import socket
from typing import Any, TypeVar

import msgspec

from ctxfs.agents.mount_table import MountRow

MAX_PACKET = 192 << 10
CHUNK = 64 << 10
DESCRIPTORS = 3
"""The launcher gets these with each byte: the guardian's socket, the agent's stdin, its stdout."""

T = TypeVar("T")


class Identity(msgspec.Struct, frozen=True):
    """Who an agent is: the peer's ids, as the kernel saw them when it connected."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class View(msgspec.Struct, frozen=True):
    """What an agent sees (spec 3.4). ``root``: a directory of the host, None for an empty one in memory.

    ``own``: the root is the peer's, so it is opened with the peer's rights; else an admin chose it.
    ``mountpoint``: where the tree is on the host; a row's source below ``/ctx`` means it.
    """

    root: str | None
    mountpoint: str
    rows: tuple[MountRow, ...] = ()
    own: bool = False


class Launch(msgspec.Struct, frozen=True):
    """An agent to be prepared. Without ``argv`` only ``cwd`` is resolved.

    ``path``: where an ``argv[0]`` without a slash is looked for. ``home``: a path of the view, whose AGENTS.md counts.
    ``log``: a file of the host that gets the end of stderr, None for nowhere.
    """

    identity: Identity
    view: View
    cwd: str
    argv: tuple[str, ...] = ()
    path: str = ""
    home: str = "/"
    log: str | None = None


class Go(msgspec.Struct, frozen=True, tag=True):
    """Starts what was prepared, with this environment and nothing else in it."""

    environment: dict[str, str]


class Signal(msgspec.Struct, frozen=True, tag=True):
    """A signal for the agent's process group; SIGKILL is for all that the agent started."""

    number: int


class Gathered(msgspec.Struct, frozen=True, tag=True):
    """A piece of a snapshot, in order: ``name`` is AGENTS.md or SKILLS.md."""

    name: str
    piece: bytes


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """The cwd is there, and so is the executable. ``root``: what CTX_ROOT is in this view."""

    root: str


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Nothing can be started: an errno and why."""

    number: int
    message: str


class ExecFailed(msgspec.Struct, frozen=True, tag=True):
    """execve(2) of the agent failed with this errno."""

    number: int


class Exited(msgspec.Struct, frozen=True, tag=True):
    """The agent ended: its exit code, or minus the signal that ended it."""

    status: int


Order = Go | Signal
Report = Gathered | Prepared | Refused | ExecFailed | Exited


def pack(message: msgspec.Struct) -> bytes:
    """A message as a packet."""
    return msgspec.msgpack.encode(message)


def unpack(packet: bytes, type: Any) -> Any:
    """A packet as one of ``type``."""
    return msgspec.msgpack.decode(packet, type=type)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends that keep packets apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
