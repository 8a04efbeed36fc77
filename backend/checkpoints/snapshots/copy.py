"""Snapshots on any file system: content is copied, holes stay holes (spec 6.5)."""

import errno
import os

_AT_ONCE = 1 << 30


def copy_data(source: int, target: int, size: int) -> None:
    """Copies ``size`` bytes of a file into a new one, of which holes take no space (``OSError``)."""
    at = 0
    while at < size:
        start = _next_data(source, at)
        if start is None:
            break
        at = min(os.lseek(source, start, os.SEEK_HOLE), size)
        _send(source, target, start, at)
    os.ftruncate(target, size)


def _next_data(source: int, at: int) -> int | None:
    try:
        return os.lseek(source, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def _send(source: int, target: int, start: int, end: int) -> None:
    """Stops early where the file has become shorter."""
    os.lseek(target, start, os.SEEK_SET)
    while start < end and (sent := os.sendfile(target, source, start, min(end - start, _AT_ONCE))):
        start += sent
