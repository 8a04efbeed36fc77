"""The daemon, but it drops the pages of a log only once the file ``drop`` is beside the mountpoint.

Run in place of ``ctxfs.daemon`` (``running_mount(module=…)``).
"""

import os
import sys
from pathlib import Path

import pyfuse3

from ctxfs import daemon
from tests.mounting import wait_until

really = pyfuse3.invalidate_inode


def invalidate_inode(inode: int, attr_only: bool = False) -> None:
    beside = Path(os.environ["CTX_ROOT"]).parent
    if not attr_only:
        (beside / "dropping").touch()
        wait_until((beside / "drop").exists, "the leave to drop pages")
    really(inode, attr_only)


if __name__ == "__main__":
    pyfuse3.invalidate_inode = invalidate_inode
    sys.exit(daemon.main())
