"""Snapshots on any file system: content is copied, holes stay holes (spec 6.5)."""

import errno
import os

_AT_ONCE = 1 << 30


def copy_data(source: int, target: int, size: int) -> None:
    """Copies ``size`` bytes of a file into a new one, of which holes take no space (``OSError``)."""
    at = 0
    while at < size and (data := _next_data(source, at)) is not None:
        start, end = data
        at = min(end, size)
        _send(source, target, start, at)
    os.ftruncate(target, size)


def _next_data(source: int, at: int) -> tuple[int, int] | None:
    """Where the next data begins and ends; None at the end of the file, where that is by now."""
    try:
        start = os.lseek(source, at, os.SEEK_DATA)
        return start, os.lseek(source, start, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def _send(source: int, target: int, start: int, end: int) -> None:
    """Stops early where the file has become shorter."""
    os.lseek(target, start, os.SEEK_SET)
    while start < end and (sent := os.sendfile(target, source, start, min(end - start, _AT_ONCE))):
        start += sent
