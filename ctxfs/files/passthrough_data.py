"""Bytes of open ordinary files (spec 1.8): what is in memory at once, what may wait for the disk elsewhere.

Used by the FUSE thread only.
"""

import errno
import os
from collections.abc import Callable
from functools import partial

from ctxfs.files.passthrough_blocking import Offload

BIG_WRITE = 64 * 1024
"""From this size on a write costs more than handing it to another thread, and may be throttled."""
_MAX_READ = 1 << 20
_NOT_CACHED = (errno.EAGAIN, errno.EOPNOTSUPP)


class FileData:
    """Reads and writes by descriptor."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._buffer = memoryview(bytearray(_MAX_READ))

    async def read(self, fd: int, offset: int, size: int) -> bytes | memoryview:
        """``size`` bytes, fewer only at the end of the file; a view is good until the next call of ``read``."""
        cached = self._read_cached(fd, offset, size)
        return cached if cached is not None else await self._offload(partial(os.pread, fd, size, offset))

    def _read_cached(self, fd: int, offset: int, size: int) -> memoryview | None:
        """The bytes if all are in memory; None if not, or if the disk cannot tell."""
        view = self._buffer[:size]
        try:
            count = os.preadv(fd, [view], offset, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno in _NOT_CACHED:
                return None
            raise
        complete = count == size or offset + count >= os.fstat(fd).st_size
        return view[:count] if complete else None

    async def write(self, fd: int, offset: int, data: bytes) -> int:
        """The number of bytes written: fewer than given on a disk that is full."""
        write = partial(os.pwrite, fd, data, offset)
        return write() if len(data) < BIG_WRITE else await self._offload(write)

    async def sync(self, fd: int, call: Callable[[int], None]) -> None:
        """Waits for the disk by ``os.fsync`` or ``os.fdatasync``."""
        await self._offload(partial(call, fd))
