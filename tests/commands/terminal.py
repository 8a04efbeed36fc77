"""Runs ``ctx`` on a terminal: a pseudo-terminal that is its controlling one, as a shell's would be."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

from tests.commands.conftest import Agent
from tests.mounting import PATIENCE_S, PROJECT

# Python sets the controlling terminal of a child only with os.login_tty, from 3.11 on.
_START = "import os, sys; os.login_tty(0); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"


def on_terminal(agent: Agent, *arguments: str, size: tuple[int, int] = (0, 0), code: int = 0, **more: str) -> str:
    """What a command prints on a terminal of so many rows and columns (0: it does not say), stderr included."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    environment = {key: value for key, value in agent.mount.environment.items() if key not in ("PAGER", "LESS")}
    process = subprocess.Popen(
        [sys.executable, "-c", _START, "-m", "mountctl.ctx", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment | {"TERM": "xterm"} | more,
        cwd=PROJECT,
    )
    os.close(slave)
    shown = b"".join(iter(lambda: _some(master), b""))
    os.close(master)
    assert process.wait(PATIENCE_S) == code, shown
    return shown.decode().replace("\r\n", "\n")


def _some(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:
        return b""
