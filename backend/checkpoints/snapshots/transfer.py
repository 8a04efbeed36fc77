"""Copying a file's content by sharing its blocks where the file systems can, else byte by byte."""

from backend.checkpoints.snapshots.copy import copy_data
from backend.checkpoints.snapshots.reflink import UNSUPPORTED, clone_data


def transfer_data(source: int, target: int, size: int) -> None:
    """As ``copy_data``; the copy may share the blocks (``OSError``)."""
    try:
        clone_data(source, target, size)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        copy_data(source, target, size)
