"""Files that all may read, in directories where others may make files too (spec 4.6). Nothing is synced."""

import os
from pathlib import Path


def write_public(path: Path, data: bytes) -> None:
    """Replaces a file, 0644 under any umask; whoever reads it finds all of the old or the new one.

    Nobody can have put anything at the name it is written under first. ``OSError``: it is as it was.
    """
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)
            file.write(data)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
