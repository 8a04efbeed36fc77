"""The launcher: the process that starts agents, so that no child of the daemon ever does (spec 3.6).

Started before the FUSE session exists, as an interpreter of its own: it holds no /dev/fuse, and nothing it forks can
keep a dead mount hanging or wait for the daemon with the daemon's locks. It knows nothing of runs: for each that
reaches it, it forks a guardian. It ends when the daemon does, whatever signals come.

``python -m ctxfs.agents.launcher DESCRIPTOR``, the descriptor a socket to the daemon.
"""

import array
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

from ctxfs.agents.guardian import guard
from ctxfs.agents.launch import DESCRIPTORS

_IGNORED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGPIPE", "SIGUSR1", "SIGUSR2")


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
    socket.send_fds(launcher, [b"!"], descriptors)


def serve(link: socket.socket) -> None:
    """Forks guardians until the daemon closes its end."""
    for name in _IGNORED:
        signal.signal(signal.Signals[name], signal.SIG_IGN)
    # Guardians are waited for by nobody.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while descriptors := _receive(link):
        if len(descriptors) == DESCRIPTORS:
            _fork_guardian(link, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _receive(link: socket.socket) -> list[int]:
    """The next run's descriptors, close-on-exec; none at the end."""
    received = array.array("i")
    size = DESCRIPTORS * received.itemsize
    _, ancillary, _, _ = link.recvmsg(1, socket.CMSG_SPACE(size), socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            received.frombytes(data[: len(data) - len(data) % received.itemsize])
    return list(received)


def _fork_guardian(link: socket.socket, descriptors: Sequence[int]) -> None:
    try:
        pid = os.fork()
    except OSError as error:
        # The daemon sees the end of this run's socket.
        print(f"WARNING ctxfs.launcher: cannot fork: {error.strerror}", file=sys.stderr, flush=True)
        return
    if pid == 0:
        link.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control, stdin, stdout = descriptors
        guard(socket.socket(fileno=control), stdin, stdout)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
