"""Files that their owner alone may read, written whole or not at all (spec 4.2)."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def private_file(directory: str, name: str) -> Iterator[BinaryIO]:
    """A new file of mode 0600 under any umask, in place of an older one of that name once it is whole and on disk.

    Makes the directory if it is missing; after an error nothing has changed.
    """
    os.makedirs(directory, mode=0o700, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=directory)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            yield file
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, f"{directory}/{name}")
    except BaseException:
        os.unlink(temporary)
        raise
