"""Immutable sequences of decoded values that hold no decoded value (spec 2.5): nothing in them can be aliased."""

from collections.abc import Callable, Iterator, Sequence
from operator import eq
from typing import TypeVar, overload

T_co = TypeVar("T_co", covariant=True)


class Decoded(Sequence[T_co]):
    """Items that are decoded anew on each access. A slice is a tuple; equal to any sequence of equal items."""

    def __init__(self, length: int, read: Callable[[int, int], Iterator[T_co]]) -> None:
        """``read``: decodes the items of a range, none where it is empty."""
        self._length = length
        self._read = read

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T_co]:
        return self._read(0, self._length)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        chosen = range(self._length)[index]
        if isinstance(chosen, int):
            return next(self._read(chosen, chosen + 1))
        if chosen.step == 1:
            return tuple(self._read(chosen.start, chosen.stop))
        return tuple(self[at] for at in chosen)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none
