"""The mark of a directory in which a copy of a store is being made, or was when who made it died (spec 4.6).

Such a directory is no store, and no place for a new one: the copy's files are about to appear in it. Who opens a store
looks for the mark once its own lock is there; who makes a copy looks for whatever else is there once the mark is. So
one of the two sees the other, whichever came first, and they need no lock of both.
"""

from pathlib import Path

from backend.errors import StoreCorrupt

INCOMPLETE = ".ctxfs-incomplete"


def refuse_unfinished(directory: Path) -> None:
    """``StoreCorrupt`` if the directory holds the mark."""
    if (directory / INCOMPLETE).exists():
        raise StoreCorrupt(
            f"{directory} holds a copy that is not finished: wait for its `mountctl restore` or `mountctl backup`;"
            " if none is running, move the directory away and begin again"
        )
