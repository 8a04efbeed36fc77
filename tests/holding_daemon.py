"""The daemon, but it drops the pages of a log only once the file ``drop`` is beside the mountpoint.

It puts ``dropping`` there when it wants to, and ``stopping`` when it is about to end its FUSE thread. Run
in place of ``ctxfs.daemon`` (``running_mount(module=…)``).
"""

import os
import sys
from pathlib import Path

import pyfuse3

from ctxfs import daemon
from ctxfs.fuse_thread import FuseThread
from tests.mounting import wait_until

BESIDE = Path(os.environ["CTX_ROOT"]).parent

really, stop = pyfuse3.invalidate_inode, FuseThread.stop


def invalidate_inode(inode: int, attr_only: bool = False) -> None:
    if not attr_only:
        (BESIDE / "dropping").touch()
        wait_until((BESIDE / "drop").exists, "the leave to drop pages")
    really(inode, attr_only)


def stop_and_tell(self: FuseThread) -> None:
    (BESIDE / "stopping").touch()
    stop(self)


if __name__ == "__main__":
    pyfuse3.invalidate_inode = invalidate_inode
    FuseThread.stop = stop_and_tell  # type: ignore[method-assign]
    sys.exit(daemon.main())
