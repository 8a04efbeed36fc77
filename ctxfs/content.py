"""What files contain at this moment: ranges of logs from the store, the rest as its row shows it."""

from collections import OrderedDict
from typing import TYPE_CHECKING

from ctxfs.inodes import TEMPORARY, Node, node_of
from ctxfs.tree import Entry, Tree

if TYPE_CHECKING:
    from ctxfs.core import Core

_KEPT = 16


class Content:
    """What files contain at this moment. Content that is computed is kept while its mtime stays."""

    def __init__(self, core: "Core", tree: Tree) -> None:
        self._core = core
        self._tree = tree
        self._shown: OrderedDict[int, tuple[int, bytes]] = OrderedDict()

    def read(self, inode: int, offset: int, size: int) -> bytes:
        """Bytes of a file, short only at its end."""
        entry = self._tree.entry(self.target(inode))
        if entry.row.stream is not None:
            return self._core.store.read_stream(entry.node.id, entry.row.stream, offset, size)
        if entry.row.exists is not None and not entry.row.exists(self._core, entry.subject):
            return b""  # a writer is about to make it
        return self.whole(inode, entry)[offset : offset + size]

    def target(self, inode: int) -> Node:
        """The node that an inode shows: itself, or what a temporary was renamed onto."""
        node = node_of(inode)
        if node.kind is TEMPORARY:
            target = self._core.temporaries.get(node.id).target
            return node if target is None else target
        return node

    def whole(self, inode: int, entry: Entry) -> bytes:
        """All of a computed file."""
        assert entry.row.show is not None
        mtime = entry.row.mtime(self._core, entry.subject)
        kept = self._shown.get(inode)
        if kept is None or kept[0] != mtime:
            kept = self._shown[inode] = (mtime, entry.row.show(self._core, entry.subject))
            if len(self._shown) > _KEPT:
                self._shown.popitem(last=False)
        return kept[1]

    def size(self, entry: Entry) -> int:
        """Exact, and without rendering what is large."""
        row = entry.row
        if row.size is not None:
            return row.size(self._core, entry.subject)
        return len(row.show(self._core, entry.subject)) if row.show is not None else 0
