"""What files contain at this moment: ranges of logs from the store, the rest as its row shows it."""

from typing import TYPE_CHECKING

from ctxfs.files.temporaries import Temporary
from ctxfs.inodes import TEMPORARY, Node, inode_of, node_of
from ctxfs.renderings import Renderings
from ctxfs.tree import Entry, Tree

if TYPE_CHECKING:
    from ctxfs.core import Core


class Content:
    """What files contain at this moment. Content that is computed is kept while its mtime stays."""

    def __init__(self, core: "Core", tree: Tree) -> None:
        self._core = core
        self._tree = tree
        self._renderings = Renderings(core.statistics.contents)

    def read(self, node: Node, inode: int, offset: int, size: int) -> bytes:
        """Bytes of a file that the kernel knows by ``inode``, short only at its end."""
        entry = self._tree.entry(node)
        if entry.row.stream is not None:
            self._core.kernel.pages.read(inode_of(node), self.size(entry))
            return self._core.store.read_stream(node.id, entry.row.stream, offset, size)
        if entry.row.exists is not None and not entry.row.exists(self._core, entry.subject):
            return b""  # a writer is about to make it
        return self._whole(inode, entry)[offset : offset + size]

    def closed(self, inode: int) -> None:
        """A handle of a file is gone."""
        self._renderings.closed(inode)

    def target(self, inode: int) -> Node | Temporary:
        """What an inode shows: a file of the table, also by what was renamed onto it, or a temporary."""
        node = node_of(inode)
        if node.kind is not TEMPORARY:
            return node
        temporary = self._core.temporaries.get(node.id)
        return temporary.target or temporary

    def _whole(self, inode: int, entry: Entry) -> bytes:
        show, subject = entry.row.show, entry.subject
        assert show is not None
        return self._renderings.of(inode, entry.row.mtime(self._core, subject), lambda: show(self._core, subject))

    def size(self, entry: Entry) -> int:
        """Exact, and without rendering what is large."""
        row = entry.row
        if row.size is not None:
            return row.size(self._core, entry.subject)
        return len(row.show(self._core, entry.subject)) if row.show is not None else 0
