"""When names in directories came and went, where the store has no time for that (spec 1.2, ``st_mtime``).

Times last as long as the mount; after it a directory has the one that its row has. FUSE thread only.
"""

import time

from backend.facts import later
from ctxfs.inodes import Kind, Node


class DirectoryTimes:
    """In ns. ``own`` is what the directory's row has; the later of both counts."""

    def __init__(self) -> None:
        self._times: dict[Node, int] = {}

    def __len__(self) -> int:
        return len(self._times)

    def of(self, directory: Node, own: int) -> int:
        """The mtime of a directory."""
        return max(own, self._times.get(directory, 0))

    def move(self, directory: Node, own: int) -> None:
        """A name in it came or went. Of a session's directory, the mtime is its updated_at (spec 1.2)."""
        if directory.kind is not Kind.SESSION:
            self._times[directory] = later(self.of(directory, own), time.time_ns())

    def forget(self, directory: Node) -> None:
        """It was removed, or has no number any more."""
        self._times.pop(directory, None)
