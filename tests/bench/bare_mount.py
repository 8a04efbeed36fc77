"""``python -m tests.bench.bare_mount MOUNTPOINT [DATABASE]``: the least that a write through pyfuse3 can cost.

Any name is a file that can be written. A write is answered at once or, given a database, when its bytes are committed
there: one row for all that came together, like ``ctxfs.commits``. There is no tree, no judgement of lines, nothing
that derives from them, and the kernel is told nothing. What ctxfs takes beyond this is its own.
"""

import errno
import stat
import sys
from pathlib import Path

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, RequestContext

from ctxfs.loop import Future, Loop
from tests.bench.bare_commit import BareCommit


class BareOperations(pyfuse3.Operations):
    """A directory of files without content."""

    enable_writeback_cache = False

    def __init__(self, loop: Loop, commit: BareCommit | None) -> None:
        super().__init__()
        self._loop = loop
        self._commit = commit
        self._names: list[bytes] = []
        self._queue: list[bytes] = []
        self._committed: Future[None] = Future(loop)

    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        return _attributes(inode)

    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        if name not in self._names:
            self._names.append(name)
        return _attributes(pyfuse3.ROOT_INODE + 1 + self._names.index(name))

    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        return FileInfo(fh=inode, direct_io=True)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        if self._commit is None:
            return len(buf)
        if self._queue or self._loop.has_more():
            if not self._queue:
                self._loop.when_idle(self._take_queue)
            self._queue.append(buf)
            await self._committed
        else:
            self._commit(buf)
        return len(buf)

    def _take_queue(self) -> None:
        assert self._commit is not None
        committed, self._committed = self._committed, Future(self._loop)
        self._commit(b"".join(self._queue))
        self._queue.clear()
        committed.set(None)

    async def flush(self, fh: int) -> None:
        return

    async def release(self, fh: int) -> None:
        return

    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        raise FUSEError(errno.EOPNOTSUPP)


def _attributes(inode: int) -> EntryAttributes:
    entry = EntryAttributes()
    entry.st_ino = inode
    entry.st_mode = stat.S_IFDIR | 0o755 if inode == pyfuse3.ROOT_INODE else stat.S_IFREG | 0o644
    entry.entry_timeout = entry.attr_timeout = 3600
    return entry


def main(mountpoint: str, database: str | None = None) -> None:
    """Serves until it is unmounted."""
    loop = Loop()
    pyfuse3.trio = loop  # type: ignore[attr-defined]
    commit = None if database is None else BareCommit(Path(database))
    pyfuse3.init(BareOperations(loop, commit), mountpoint, {*pyfuse3.default_options, "fsname=bare"})
    print("ready", flush=True)
    loop.run(lambda: pyfuse3.main(min_tasks=12))
    pyfuse3.close(unmount=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
