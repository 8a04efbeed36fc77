"""Open directories: one listing in many replies (spec 1.2).

A reply holds some two hundred entries. The next one goes on where it was full, unless anything changed since: what
the kernel is told of an entry it keeps for an hour, so that must be true at the moment of the reply.
"""

from collections.abc import Iterator

from ctxfs.inodes import INTERNED, Node
from ctxfs.kernel_cache import KernelCache
from ctxfs.tree import Entry, Tree

Listed = tuple[int, str, Entry]


class Listing:
    """The directory ``node``, as ``uid`` opened it."""

    def __init__(self, tree: Tree, kernel: KernelCache, node: Node, uid: int) -> None:
        self.node = node
        self._tree = tree
        self._kernel = kernel
        self._uid = uid
        self._rest: Iterator[Listed] = iter(())
        self._unsent: Listed | None = None
        self._sent: int | None = None
        self._changes = kernel.changes

    def after(self, start: int) -> Iterator[Listed]:
        """(offset, name, entry) of what comes after offset ``start``; whoever does not go on has not sent the last."""
        if start != self._sent or self._changes != self._kernel.changes or self._has_lost_its_number():
            self._begin(start)
        while (listed := self._unsent or next(self._rest, None)) is not None:
            self._unsent = listed
            yield listed
            self._unsent, self._sent = None, listed[0]

    def _has_lost_its_number(self) -> bool:
        # A number that the kernel was not told of is gone with the next new one.
        return self._unsent is not None and self._unsent[2].node.kind in INTERNED

    def _begin(self, start: int) -> None:
        self._changes = self._kernel.changes
        self._rest = self._tree.children(self._tree.entry(self.node), start, self._uid)
        self._unsent, self._sent = None, start
