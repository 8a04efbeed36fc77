"""The launcher: the process that starts agents, so that no child of the daemon ever does (spec 3.6).

Started before the FUSE session exists, as an interpreter of its own: it holds no /dev/fuse, and nothing it forks can
keep a dead mount hanging or wait for the daemon with the daemon's locks. It knows nothing of runs: for each that
reaches it, it forks a guardian. It ends when the daemon does, whatever signals come.

It also ends the FUSE connection of a daemon that was killed. The kernel does that itself once nobody has /dev/fuse
open, but a thread that was having something dropped from its caches then waits for a request that nobody answers, and
cannot be killed: the daemon would stay a zombie, and everybody who uses the mount would wait for it for ever.

``python -m ctxfs.agents.launcher DESCRIPTOR``, the descriptor a socket to the daemon.
"""

import array
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

from ctxfs import probe
from ctxfs.agents.guardian import guard
from ctxfs.agents.kernel_calls import signal_when_parent_dies
from ctxfs.agents.launch import DESCRIPTORS

_IGNORED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGPIPE", "SIGUSR1", "SIGUSR2")
NEW_RUN, _WORD = b"!", 32
_PARENT_DIED = signal.SIGRTMIN


def start() -> tuple[socket.socket, int]:
    """Starts a launcher: the socket that ``hand_over`` takes, and its pid. The end of the socket ends it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "ctxfs.agents.launcher", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    # Its end is the daemon's own, so nobody waits for it.
    process.returncode = 0
    return ours, process.pid


def hand_over(launcher: socket.socket, descriptors: Sequence[int]) -> None:
    """Gives a run to the launcher: the guardian's socket, the agent's stdin and stdout (``OSError``)."""
    socket.send_fds(launcher, [NEW_RUN], descriptors)


def watch(launcher: socket.socket, minor: int) -> None:
    """Has the FUSE connection of this number ended when the thread that started the launcher is gone (``OSError``)."""
    launcher.send(str(minor).encode())


class Connections:
    """FUSE connections of the daemon, by descriptors that end them; also one that is found after its death."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []
        self._is_dead = False

    def add(self, minor: int) -> None:
        connection = probe.connection(minor)
        if connection is not None:
            self.descriptors.append(connection)
        if self._is_dead:
            self._abort()

    def daemon_died(self, *_: object) -> None:
        self._is_dead = True
        self._abort()

    def _abort(self) -> None:
        for connection in self.descriptors:
            with contextlib.suppress(OSError):
                probe.abort(connection)


def serve(link: socket.socket) -> None:
    """Forks guardians until the daemon closes its end."""
    connections = Connections()
    signal.signal(_PARENT_DIED, connections.daemon_died)
    signal_when_parent_dies(_PARENT_DIED)
    for name in _IGNORED:
        signal.signal(signal.Signals[name], signal.SIG_IGN)
    # Guardians are waited for by nobody.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while message := _receive(link):
        word, descriptors = message
        if word != NEW_RUN:
            connections.add(int(word))
        elif len(descriptors) == DESCRIPTORS:
            _fork_guardian((link.fileno(), *connections.descriptors), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _receive(link: socket.socket) -> tuple[bytes, list[int]] | None:
    """A connection's number, or the next run's descriptors, close-on-exec; None at the end."""
    received = array.array("i")
    size = DESCRIPTORS * received.itemsize
    word, ancillary, _, _ = link.recvmsg(_WORD, socket.CMSG_SPACE(size), socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            received.frombytes(data[: len(data) - len(data) % received.itemsize])
    return (word, list(received)) if word else None


def _fork_guardian(own: Sequence[int], descriptors: Sequence[int]) -> None:
    try:
        pid = os.fork()
    except OSError as error:
        # The daemon sees the end of this run's socket.
        print(f"WARNING ctxfs.launcher: cannot fork: {error.strerror}", file=sys.stderr, flush=True)
        return
    if pid == 0:
        for descriptor in own:
            os.close(descriptor)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control, stdin, stdout = descriptors
        guard(socket.socket(fileno=control), stdin, stdout)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
