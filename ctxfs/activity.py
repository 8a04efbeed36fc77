"""Which agents and models have a run at this moment: ``agent/<agent>.d/status`` (spec 1.2). FUSE thread only.

``active`` while any run of it is, whoever's; ``idle`` else.
"""

import time
from collections import Counter
from collections.abc import Callable


class Activity:
    """By the numbers of definitions; ``changed`` is told of one that became active or idle."""

    def __init__(self, changed: Callable[[int], None]) -> None:
        self._changed = changed
        self._runs: dict[str, int] = {}
        self._counts: Counter[int] = Counter()
        self._changed_ns: dict[int, int] = {}

    def begun(self, definition: int, run: str) -> None:
        self._runs[run] = definition
        self._counts[definition] += 1
        if self._counts[definition] == 1:
            self._turned(definition)

    def ended(self, run: str) -> None:
        """Nothing where it was not known to run."""
        definition = self._runs.pop(run, None)
        if definition is None:
            return
        self._counts[definition] -= 1
        if not self._counts[definition]:
            del self._counts[definition]
            self._turned(definition)

    def state(self, definition: int) -> str:
        """``active`` or ``idle``."""
        return "active" if definition in self._counts else "idle"

    def changed_at(self, definition: int) -> int:
        """When that changed, ns; 0 while it never did."""
        return self._changed_ns.get(definition, 0)

    def _turned(self, definition: int) -> None:
        self._changed_ns[definition] = max(self.changed_at(definition) + 1, time.time_ns())
        self._changed(definition)
