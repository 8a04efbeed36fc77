"""Runs a command in a mount namespace of its own: ``python -m tests.own_mounts BASE COMMAND ARGUMENT…``.

A namespace keeps whatever was mounted when it was made, also what is unmounted elsewhere meanwhile: its daemon would
not end, nor its disk be free. So mounts of tests go from it at once, but for those below ``BASE``.
"""

import ctypes
import os
import re
import sys

from ctxfs import mounts
from ctxfs.agents.kernel_calls import AT_RECURSIVE, CLONE_NEWNS, MS_PRIVATE, set_mount, unshare
from ctxfs.probe import MNT_DETACH

_OF_TESTS = re.compile(r"/(ctxfs-test-|pytest-of-|helper\.)")


def in_own_mounts(base: object, *command: str) -> list[str]:
    """The command line, for a process whose working directory is the project's."""
    return [sys.executable, "-m", "tests.own_mounts", str(base), *command]


def _others(base: str) -> list[str]:
    """Mountpoints that are neither in ``base`` nor on the way to it, the outermost first."""
    found = [mount.mountpoint for mount in mounts.mounts() if _OF_TESTS.search(mount.mountpoint)]
    return [path for path in found if not f"{path}/".startswith(f"{base}/") and not f"{base}/".startswith(f"{path}/")]


def main(base: str, *command: str) -> None:
    libc = ctypes.CDLL(None)
    unshare(CLONE_NEWNS)
    top = os.open("/", os.O_PATH | os.O_DIRECTORY)
    set_mount(top, 0, AT_RECURSIVE, propagation=MS_PRIVATE)
    os.close(top)
    for path in _others(base):
        libc.umount2(os.fsencode(path), MNT_DETACH)  # one that was below another is gone with it
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
