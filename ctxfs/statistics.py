"""Counters of one mount, read from any thread (spec 4.6, ``mountctl status``)."""

import errno
from collections import Counter

import msgspec


class CacheCounts(msgspec.Struct):
    """How often a cache knew what it was asked for, and how often it did not."""

    hits: int = 0
    misses: int = 0


class Statistics(msgspec.Struct):
    """``requests`` by operation, ``errors`` by errno name; ``internal`` counts exceptions nobody expected.

    ``sessions`` and ``contents`` are of the daemon's own caches (``ctxfs.subjects``, ``ctxfs.renderings``): what the
    kernel has in its caches never reaches the daemon.
    """

    requests: Counter[str] = msgspec.field(default_factory=Counter)
    errors: Counter[str] = msgspec.field(default_factory=Counter)
    dropped_rests: int = 0
    internal: int = 0
    last_error: str | None = None
    sessions: CacheCounts = msgspec.field(default_factory=CacheCounts)
    contents: CacheCounts = msgspec.field(default_factory=CacheCounts)

    def refused(self, number: int) -> None:
        """Counts an errno that was answered."""
        self.errors[errno.errorcode.get(number, str(number))] += 1

    def failed(self, operation: str, error: BaseException) -> None:
        """Counts an exception that nobody expected, and an EIO, also where nobody had to be answered."""
        self.internal += 1
        self.refused(errno.EIO)
        self.last_error = f"{operation}: {type(error).__name__}"
