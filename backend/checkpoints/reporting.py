"""What the disk, or who writes in a workspace, does to an operation, as an error of the protocol (spec 6.3)."""

from collections.abc import Iterator
from contextlib import contextmanager

from backend.checkpoints.errors import DiskSpaceInsufficient, InternalError, WriteLockConflict
from backend.checkpoints.snapshots.walking import TreeChanged
from backend.durable import DISK_FULL


@contextmanager
def reported() -> Iterator[None]:
    """What the disk says inside becomes an error of the protocol."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if isinstance(error.filename, str) else ""
        message = f"{where}{error.strerror or error}"
        if error.errno in DISK_FULL:
            raise DiskSpaceInsufficient(message) from error
        raise InternalError(message) from error
    except TreeChanged as changed:
        raise WriteLockConflict(f"{changed} changed meanwhile. Please wait and retry.") from changed
