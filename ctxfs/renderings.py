"""Computed contents that are kept, so that reading a file piece by piece does not compute it for each piece.

Bounded in bytes, whatever is read (design, Speed: resident memory). FUSE thread only.
"""

from collections import OrderedDict
from collections.abc import Callable

from ctxfs.statistics import CacheCounts

LIMIT = 8 << 20
ENTRY = 256  # what one takes beside its content


class Renderings:
    """The last ones used, 8 MiB in all; beside them one that is bigger, while its file is open. ``counts`` are kept."""

    def __init__(self, counts: CacheCounts, limit: int = LIMIT) -> None:
        self._counts = counts
        self._limit = limit
        self._kept: OrderedDict[int, tuple[int, bytes]] = OrderedDict()
        self._bytes = 0
        self._big: tuple[int, int, bytes] | None = None

    def __len__(self) -> int:
        """Bytes that are held."""
        return self._bytes + (_cost(self._big[2]) if self._big else 0)

    def of(self, inode: int, mtime: int, render: Callable[[], bytes]) -> bytes:
        """The content that ``inode`` has since ``mtime``."""
        if self._big is not None and self._big[:2] == (inode, mtime):
            self._counts.hits += 1
            return self._big[2]
        kept = self._kept.get(inode)
        if kept is not None and kept[0] == mtime:
            self._kept.move_to_end(inode)
            self._counts.hits += 1
            return kept[1]
        self._counts.misses += 1
        content = render()
        self._keep(inode, mtime, content)
        return content

    def _keep(self, inode: int, mtime: int, content: bytes) -> None:
        self._drop(inode)
        if _cost(content) > self._limit:
            self._big = inode, mtime, content
            return
        self._kept[inode] = mtime, content
        self._bytes += _cost(content)
        while self._bytes > self._limit:
            self._drop(next(iter(self._kept)))

    def _drop(self, inode: int) -> None:
        if inode in self._kept:
            self._bytes -= _cost(self._kept.pop(inode)[1])

    def closed(self, inode: int) -> None:
        """A handle of ``inode`` is gone."""
        if self._big is not None and self._big[0] == inode:
            self._big = None


def _cost(content: bytes) -> int:
    return len(content) + ENTRY
