"""The store's clock: wall time that never stands still or goes back while the store is open (spec 1.2)."""

from collections.abc import Callable


class Clock:
    """Ticks in ns, each later than the one before; ``source`` is ``time.time_ns`` or a test's."""

    def __init__(self, source: Callable[[], int]) -> None:
        self._source = source
        self._last = 0

    def tick(self) -> int:
        self._last = max(self._source(), self._last + 1)
        return self._last

    def wall_ms(self) -> int:
        """The time of an entry: the wall clock as it is."""
        return self._source() // 1_000_000
