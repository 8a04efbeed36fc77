"""Removing a whole tree that its owner may still be changing (spec 6.5)."""

import os
import stat

from backend.checkpoints.snapshots.walking import Cursor, cursor_at, entries


def remove_below(root: int) -> None:
    """Removes all that an open directory holds (``OSError``, ``TreeChanged``: some of it is left)."""
    with cursor_at(root) as cursor:
        waiting = [_remove_level(cursor)]
        while waiting:
            if waiting[-1]:
                cursor.down(waiting[-1].pop())
                waiting.append(_remove_level(cursor))
                continue
            waiting.pop()
            if waiting:
                name = cursor.up()
                os.rmdir(name, dir_fd=cursor.fd)


def _remove_level(cursor: Cursor) -> list[str]:
    """Removes what is no directory; the names of the directories."""
    below = []
    for entry in entries(cursor):
        if stat.S_ISDIR(entry.stat.st_mode):
            below.append(entry.name)
        else:
            os.unlink(entry.name, dir_fd=cursor.fd)
    return below
