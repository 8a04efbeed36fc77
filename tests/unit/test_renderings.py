"""Kept renderings: computed once for as long as they are read, and never more than a bound in memory."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from ctxfs.renderings import ENTRY, Renderings
from ctxfs.statistics import CacheCounts

LIMIT = 10_000


class Files:
    """Files by inode, all with that many bytes; ``rendered`` says how often each was computed."""

    def __init__(self, **sizes: int) -> None:
        self.counts = CacheCounts()
        self.renderings = Renderings(self.counts, LIMIT)
        self.sizes = {int(name[1:]): size for name, size in sizes.items()}
        self.rendered: list[int] = []

    def read(self, inode: int, mtime: int = 1) -> bytes:
        return self.renderings.of(inode, mtime, self._render(inode, mtime))

    def _render(self, inode: int, mtime: int) -> Callable[[], bytes]:
        def render() -> bytes:
            self.rendered.append(inode)
            return bytes([mtime]) * self.sizes[inode]

        return render


def test_a_file_is_computed_once_while_its_mtime_stays() -> None:
    files = Files(i1=10)
    assert [files.read(1), files.read(1), files.read(1, 2), files.read(1, 2)] == [b"\1" * 10] * 2 + [b"\2" * 10] * 2
    assert files.rendered == [1, 1]
    assert files.counts == CacheCounts(hits=2, misses=2)
    assert len(files.renderings) == 10 + ENTRY


def test_the_last_used_stay_within_the_limit() -> None:
    files = Files(i1=4000, i2=4000, i3=4000)
    for inode in (1, 2, 1, 3, 1, 2):
        files.read(inode)
    assert files.rendered == [1, 2, 3, 2]
    assert len(files.renderings) <= LIMIT


def test_one_above_the_limit_is_kept_while_it_is_open_whatever_is_read_beside_it() -> None:
    files = Files(i1=20_000, i2=6000, i3=6000)
    for inode in (1, 2, 1, 3, 1, 2, 1):
        files.read(inode)
    assert files.rendered.count(1) == 1
    assert files.counts == CacheCounts(hits=3, misses=4)
    files.renderings.closed(2)
    assert len(files.renderings) == 20_000 + 6000 + 2 * ENTRY
    files.renderings.closed(1)
    assert len(files.renderings) == 6000 + ENTRY


def test_of_several_above_the_limit_one_is_kept() -> None:
    files = Files(i1=20_000, i2=30_000)
    files.read(1)
    files.read(2)
    assert len(files.renderings) == 30_000 + ENTRY


@given(steps=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3), st.booleans())))
def test_it_is_always_right_and_bounded(steps: list[tuple[int, int, bool]]) -> None:
    files = Files(i0=0, i1=3000, i2=6000, i3=9744, i4=9745, i5=50_000)
    for inode, mtime, closes in steps:
        assert files.read(inode, mtime) == bytes([mtime]) * files.sizes[inode]
        if closes:
            files.renderings.closed(inode)
        assert len(files.renderings) <= LIMIT + 50_000 + ENTRY


def test_empty_ones_are_bounded_too() -> None:
    files = Files(**{f"i{number}": 0 for number in range(1000)})
    for number in range(1000):
        files.read(number)
    assert len(files.renderings) <= LIMIT
