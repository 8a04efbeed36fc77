"""Whether the store's disk takes what it is given, as ``/ctx/status`` shows it (spec 1.2). FUSE thread only."""

import time
from collections.abc import Callable
from typing import Literal

from backend.errors import StoreFailed, StoreFull

Failure = Literal["disk full", "disk failed"]


class DiskHealth:
    """The last failure, until something is stored again; ``changed`` is called when that changes.

    Everybody may read status, so it says what kind of failure it is, never where or whose.
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
