"""Which store a directory holds, and opening it for a mount (spec 4.6, ``--format``)."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Literal, cast, get_args

from backend.errors import OpenError, StoreDenied, StoreFormat, StoreLocked, StoreReadOnly
from backend.store import DiskStore
from backend.unfinished import refuse_unfinished

Format = Literal["sqlite", "jsonl"]
FORMATS: tuple[Format, ...] = get_args(Format)

_CONSTRUCTORS: dict[Format, tuple[str, str]] = {
    "sqlite": ("backend.sqlite", "SqliteStore"),
    "jsonl": ("backend.jsonl", "JsonlStore"),
}
LOCKS: dict[Format, str] = {"sqlite": "lock", "jsonl": ".ctxfs/lock"}
"""What the process that has a store open holds a lock of, below its directory."""
_SQLITE_FILE = "ctxfs.db"
_JSONL_FILE = ".ctxfs/format"
# A tree of CortexFS is a jsonl store that nobody has opened yet.
_FOREIGN_DIRECTORIES = ("home", "shared")
# What a file system has of its own, and what a creation of a store leaves that was killed.
_NOTHING = frozenset(("lost+found", "lock"))


def detect(directory: Path) -> Format | None:
    """The format of the store in ``directory``, None for a new one.

    ``StoreFormat``: it holds something else. ``StoreCorrupt``: a copy that is not finished.
    """
    try:
        refuse_unfinished(directory)
        names = frozenset(os.listdir(directory)) - _NOTHING
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise StoreFormat(f"{directory} is not a directory") from None
    except OSError as error:
        raise _refused("read", directory, error) from error
    if _SQLITE_FILE in names:
        return "sqlite"
    if (directory / _JSONL_FILE).is_file() or any((directory / name).is_dir() for name in _FOREIGN_DIRECTORIES):
        return "jsonl"
    if any(not name.startswith(".") for name in names):
        raise StoreFormat(f"{directory} is not a ctxfs store and not empty: choose another directory")
    return None


def _refused(what: str, directory: Path, error: OSError) -> OpenError:
    kind = StoreDenied if isinstance(error, PermissionError) else OpenError
    return kind(f"cannot {what} the store {directory}: {error.strerror}")


def choose(directory: Path, wanted: Format | None) -> Format:
    """The format to open: what the store is; for a new one ``wanted`` or sqlite (``StoreFormat``: they differ)."""
    found = detect(directory)
    if found is not None and wanted is not None and found != wanted:
        raise StoreFormat(f"{directory} is a {found} store, not {wanted}: leave out --format, or choose another store")
    return found or wanted or "sqlite"


def make_directory(directory: Path) -> list[Path]:
    """Makes a missing store directory 0700, its parents too; what was made, innermost first (``OpenError``)."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    made: list[Path] = []
    try:
        for path in reversed(missing):
            path.mkdir()
            made.insert(0, path)
            path.chmod(0o700 if path == directory else 0o755)
    except OSError as error:
        remove_made(made)
        kind = StoreReadOnly if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM) else OpenError
        raise kind(f"cannot make the store {directory}: {error.strerror}") from error
    return made


def remove_made(made: list[Path]) -> None:
    """Takes back ``make_directory``, as far as nothing has been put there."""
    with contextlib.suppress(OSError):
        for path in made:
            path.rmdir()


def open_store(directory: Path, form: Format) -> DiskStore:
    """Opens a store for this process alone (``OpenError`` and its kinds, with the exit codes of spec 4.6)."""
    module, name = _CONSTRUCTORS[form]
    return cast(DiskStore, getattr(import_module(module), name).open_now(directory))


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keeps everybody from opening a store, which is not opened either (``StoreLocked``, ``OpenError``)."""
    form = detect(directory)
    if form is None:
        raise OpenError(f"there is no store in {directory}")
    try:
        descriptor = os.open(directory / LOCKS[form], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _refused("lock", directory, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StoreLocked(f"the store {directory} is open in another process: see `mountctl status`") from None
    finally:
        os.close(descriptor)


def search_directory(directory: Path, form: Format) -> Path:
    """Where a store's search indexes are; everything in it may be removed while the store is not open."""
    return directory / (".ctxfs/search" if form == "jsonl" else "search")


def disk_directory(directory: Path, form: Format) -> Path:
    """Below what a store's ordinary directories are on the disk (spec 1.2): in a jsonl store beside its sessions."""
    return directory if form == "jsonl" else directory / "disk"
