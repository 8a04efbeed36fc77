"""Counters of one mount, read from any thread (spec 4.6, ``mountctl status``)."""

import errno
import time
from collections import Counter
from collections.abc import Callable
from typing import Literal

import msgspec

from backend.errors import StoreFailed, StoreFull

Failure = Literal["disk full", "disk failed"]


class Statistics(msgspec.Struct):
    """``requests`` by operation, ``errors`` by errno name; ``internal`` counts exceptions nobody expected."""

    requests: Counter[str] = msgspec.field(default_factory=Counter)
    errors: Counter[str] = msgspec.field(default_factory=Counter)
    dropped_rests: int = 0
    internal: int = 0
    last_error: str | None = None

    def refused(self, number: int) -> None:
        """Counts an errno that was answered."""
        self.errors[errno.errorcode.get(number, str(number))] += 1

    def failed(self, operation: str, error: BaseException) -> None:
        """Counts an exception that should not have been."""
        self.internal += 1
        self.last_error = f"{operation}: {type(error).__name__}"


class Health:
    """Whether the store's disk takes what it is given; shown in ``/ctx/status`` (spec 1.2). FUSE thread only.

    Everybody may read that file, so it says what kind of failure it is, never where or whose.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.failure: Failure | None = None
        self.changed_ns = time.time_ns()

    def failed(self, error: StoreFull | StoreFailed) -> None:
        """The disk is full, or failed."""
        self._become("disk full" if isinstance(error, StoreFull) else "disk failed")

    def recovered(self) -> None:
        """Something was stored."""
        self._become(None)

    def _become(self, failure: Failure | None) -> None:
        if failure != self.failure:
            self.failure = failure
            self.changed_ns = max(self.changed_ns + 1, time.time_ns())
            self._changed()
