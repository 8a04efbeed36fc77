"""Whose the daemon's open descriptors are, so that one user cannot take them all (``EMFILE`` for that user alone).

Each open file of an ordinary directory is a descriptor of the daemon, which serves everybody. Used by the FUSE thread
only.
"""

import errno
import os
import resource
from collections import Counter


class Descriptors:
    """Descriptors by the uid that opened them; a uid other than 0 has at most half of what the process may open."""

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        self._counts: Counter[int] = Counter()

    def check(self, uid: int) -> None:
        """Refuses (``EMFILE``) one more."""
        if uid and self._counts[uid] >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def add(self, descriptor: int, uid: int) -> None:
        """It is open now."""
        self._owners[descriptor] = uid
        self._counts[uid] += 1

    def close(self, descriptor: int) -> None:
        """Closes one that was added."""
        uid = self._owners.pop(descriptor)
        self._counts[uid] -= 1
        if not self._counts[uid]:
            del self._counts[uid]
        os.close(descriptor)
