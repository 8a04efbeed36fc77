"""How much memory writers may hold before anything is stored (spec 1.4). FUSE thread only."""

import errno
from collections import Counter

from pyfuse3 import FUSEError

USER_LIMIT = 64 << 20
TOTAL_LIMIT = 512 << 20


class Budget:
    """The bytes of temporaries, rests and pending values, by user and in all."""

    def __init__(self) -> None:
        self._users: Counter[int] = Counter()
        self._total = 0

    def resize(self, uid: int, old: int, new: int) -> None:
        """Accounts for ``old`` bytes becoming ``new``; ``ENOSPC`` above 64 MiB a user or 512 MiB in all."""
        growth = new - old
        if growth > 0 and (self._users[uid] + growth > USER_LIMIT or self._total + growth > TOTAL_LIMIT):
            raise FUSEError(errno.ENOSPC)
        self._users[uid] += growth
        self._total += growth
