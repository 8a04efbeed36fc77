"""A progress bar on stderr: only on a terminal, only for work of more than a second (spec 4)."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

_AFTER_S = 1.0
_EVERY_S = 0.1
_WIDTH = 30


def followed(items: Iterable[T], total: int) -> Iterator[T]:
    """The items, with a bar for how many of ``total`` have been taken; for work that prints nothing meanwhile."""
    with Progress(total) as progress:
        at = progress.of_file()
        for number, item in enumerate(items):
            at(number)
            yield item


class Progress:
    """Counts towards ``total``; messages for stderr go through ``say``, so that the bar does not break them."""

    def __init__(self, total: int) -> None:
        self._total = max(1, total)
        self._done = 0
        self._visible = False
        self._next = time.monotonic() + _AFTER_S
        self._terminal = sys.stderr.isatty()

    def of_file(self) -> Callable[[int], None]:
        """A callback that takes the position in one more file."""
        base = self._done

        def at(position: int) -> None:
            self._done = base + position
            if self._terminal and time.monotonic() >= self._next:
                self._draw()

        return at

    def say(self, line: str) -> None:
        """Prints a line on stderr, above the bar."""
        self._clear()
        print(line, file=sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._clear()

    def _draw(self) -> None:
        share = min(1.0, self._done / self._total)
        filled = round(share * _WIDTH)
        print(f"\r[{'#' * filled}{' ' * (_WIDTH - filled)}] {share:4.0%}", end="", file=sys.stderr, flush=True)
        self._visible = True
        self._next = time.monotonic() + _EVERY_S

    def _clear(self) -> None:
        if self._visible:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._visible = False
