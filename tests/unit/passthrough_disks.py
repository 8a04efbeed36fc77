"""What tests of ordinary directories stand on: a root without a mount, and its handlers called directly."""

import errno
import os
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from pyfuse3 import RequestContext

from ctxfs.files.passthrough import DiskOperations
from ctxfs.files.passthrough_tree import DIRECTORY_LIMIT

T = TypeVar("T")
HOME = f"home/{os.geteuid()}"
KEY = f"{HOME}/agent/coder/data"
CALLER = cast(RequestContext, SimpleNamespace(uid=os.geteuid(), gid=os.getegid(), pid=0, umask=0o022))


def run(handler: Coroutine[Any, Any, T]) -> T:
    """The answer of a handler, which may wait for nothing here."""
    try:
        handler.send(None)
    except StopIteration as stop:
        return cast(T, stop.value)
    raise AssertionError("the handler waits")


def error_of(handler: Coroutine[Any, Any, Any]) -> str:
    try:
        run(handler)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "ok"


class Disk:
    """A ``DiskOperations`` with one root, and what is needed to look behind it."""

    def __init__(self, base: Path, key: str = KEY) -> None:
        self.invalidated: list[int] = []
        self.operations = DiskOperations(base, as_root=os.geteuid() == 0, invalidate=self.invalidated.append)
        self.root = self.operations.make_root(key, -1, -1, 0o755)
        self.path = base / key

    def look_up(self, *names: bytes) -> int:
        inode = self.root
        for name in names:
            inode = run(self.operations.lookup(inode, name, CALLER)).st_ino
        return inode

    def forget(self, inode: int, lookups: int = 1) -> None:
        run(self.operations.forget([(inode, lookups)]))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def forget_descriptors(disk: Disk) -> None:
    """Asks for so many other directories that none of those before is still open."""
    (disk.path / "many").mkdir()
    for number in range(DIRECTORY_LIMIT + 1):
        (disk.path / "many" / str(number)).mkdir()
        run(disk.operations.getattr(disk.look_up(b"many", b"%d" % number), CALLER))
