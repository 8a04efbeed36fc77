"""Mounts ``DiskOperations`` alone: ``python -m tests.posix.serve BASE MOUNTPOINT UID``, UID 0 for everybody.

The root of the mount is the root directory ``data`` below BASE (made when missing, mode 0755). Prints ``mounted``.
An unexpected exception is printed with its stack and answered EIO; whoever runs this fails on any output to stderr.
"""

import sys
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyfuse3

from ctxfs.files.passthrough import DiskOperations
from ctxfs.files.passthrough_blocking import BlockingCalls
from ctxfs.loop import Loop
from tests.posix.world import confine

KEY = "data"
HANDLERS = (
    *("lookup", "getattr", "setattr", "readlink", "mknod", "mkdir", "unlink", "rmdir", "symlink", "rename", "link"),
    *("open", "create", "read", "write", "flush", "release", "fsync", "opendir", "readdir", "releasedir", "fsyncdir"),
    *("statfs", "setxattr", "getxattr", "listxattr", "removexattr"),
)
INODE_ARGUMENTS = {"rename": (0, 2), "link": (0, 1)}
BY_HANDLE = ("read", "write", "flush", "release", "fsync", "readdir", "releasedir", "fsyncdir", "statfs")


def dispatched(name: str, handler: Callable[..., Awaitable[Any]], root: int) -> Callable[..., Awaitable[Any]]:
    """The handler with the mount's root inode for 1, and errors as pyfuse3 wants them."""
    inodes = () if name in BY_HANDLE else INODE_ARGUMENTS.get(name, (0,))

    async def dispatch(_: object, *args: Any) -> Any:
        real = [root if at in inodes and value == pyfuse3.ROOT_INODE else value for at, value in enumerate(args)]
        try:
            return await handler(*real)
        except OSError as error:
            raise pyfuse3.FUSEError(error.errno or 5) from None
        except Exception:
            traceback.print_exc()
            raise pyfuse3.FUSEError(5) from None

    return dispatch


def operations_on(disk: DiskOperations, root: int) -> pyfuse3.Operations:
    handlers = {name: dispatched(name, getattr(disk, name), root) for name in HANDLERS}

    async def forget(_: object, inodes: list[tuple[int, int]]) -> None:
        await disk.forget([(inode, lookups) for inode, lookups in inodes if inode != pyfuse3.ROOT_INODE])

    served: pyfuse3.Operations = type("Served", (pyfuse3.Operations,), {**handlers, "forget": forget})()
    return served


def main(base: str, mountpoint: str, uid: str) -> None:
    options = {"default_permissions", "fsname=ctxfs-disk"}
    if uid == "0":
        options.add("allow_other")
    else:
        confine(int(uid))
    invalidate = partial(pyfuse3.invalidate_inode, attr_only=True)
    loop = Loop()
    offload = BlockingCalls(loop)
    disk = DiskOperations(Path(base), as_root=uid == "0", invalidate=invalidate, offload=offload)
    root = disk.make_root(KEY, -1, -1, 0o755)
    pyfuse3.trio = loop  # type: ignore[attr-defined]
    pyfuse3.init(operations_on(disk, root), mountpoint, options)
    print("mounted", flush=True)
    try:
        loop.run(pyfuse3.main)
    finally:
        pyfuse3.close(unmount=True)
        offload.close()
        disk.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
