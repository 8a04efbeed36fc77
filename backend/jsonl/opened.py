"""Opening a store's directory: that it is one, of this format, and that nobody else has it open (spec 4.6)."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from backend.errors import OpenError, StoreFormat, StoreLocked, StoreReadOnly
from backend.jsonl.disk import (
    DIRECTORY_MODE,
    create,
    exists,
    fsync,
    is_directory,
    make_directories,
    make_directory,
    open_regular,
    read_small,
)
from backend.jsonl.paths import HIDDEN
from backend.unfinished import refuse_unfinished

Death = Literal["none", "process", "machine"]

_FORMAT = b"ctxfs-jsonl 1\n"
_OPENED = "opened"
_MAX_PLACE = 256
_OTHER_STORES = ("ctxfs.db",)
_READ_ONLY = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))


@contextmanager
def opening(directory: str) -> Iterator[None]:
    """What fails while a store is opened is an ``OpenError``."""
    try:
        yield
    except OSError as error:
        kind = StoreReadOnly if error.errno in _READ_ONLY else OpenError
        raise kind(f"cannot open the store {directory}: {error.strerror}") from error


class Lock(NamedTuple):
    """``directory``: the absolute path of the store. ``descriptor`` keeps others out until it is closed.

    ``death``: what became of who had the store open before: closed it, or died with it; then "machine" means that
    unsynced writes may be lost (another boot, or a copy on another device).
    """

    directory: str
    descriptor: int
    death: Death


def lock_directory(path: Path) -> Lock:
    """Locks the store, and makes it if it is missing.

    ``StoreLocked``, ``StoreFormat``, ``StoreReadOnly``, ``StoreCorrupt`` (an unfinished copy), ``OpenError``.
    """
    directory = os.path.realpath(path)
    with opening(directory):
        refuse_unfinished(Path(directory))
        _make(directory)
        lock = _lock(directory)
        try:
            refuse_unfinished(Path(directory))  # again, as the lock is there now
            _check_format(directory)
            return Lock(directory, lock, _death(directory))
        except BaseException:
            os.close(lock)
            raise


def mark_open(lock: Lock) -> None:
    """Says on the disk that the store is open, and where; before anything is written to it (``OSError``)."""
    path = f"{lock.directory}/{HIDDEN}/{_OPENED}"
    create(path, _place(lock.directory))
    for each in (path, os.path.dirname(path)):
        fsync(each)


def mark_copy(directory: str) -> None:
    """Says of a copy that was made while the store was open that it is whole, but for what an opening makes anew."""
    create(f"{directory}/{HIDDEN}/{_OPENED}", _place(directory))


def mark_closed(lock: Lock) -> None:
    """Says that all of the store is on disk (``OSError``)."""
    os.unlink(f"{lock.directory}/{HIDDEN}/{_OPENED}")


def _death(directory: str) -> Death:
    path = f"{directory}/{HIDDEN}/{_OPENED}"
    if not exists(path):
        return "none"
    return "process" if read_small(path, _MAX_PLACE) == _place(directory) else "machine"


def _place(directory: str) -> bytes:
    """Where unsynced writes survive a process: this boot, this device."""
    with open("/proc/sys/kernel/random/boot_id", "rb") as boot:
        return b"%b %d\n" % (boot.read().strip(), os.stat(directory).st_dev)


def _make(directory: str) -> None:
    """What a store has at least; refuses what is none."""
    if exists(directory) and not os.path.isdir(directory):
        raise StoreFormat(f"{directory} is not a directory")
    if not exists(directory):
        os.makedirs(directory, DIRECTORY_MODE)
        os.chmod(directory, DIRECTORY_MODE)
    for name in _OTHER_STORES:
        if exists(f"{directory}/{name}"):
            raise StoreFormat(f"{directory} holds a store of another format ({name})")
    make_directories(f"{directory}/{HIDDEN}")
    if not any(is_directory(f"{directory}/{name}") for name in ("home", "shared")):
        make_directory(f"{directory}/home")


def _lock(directory: str) -> int:
    path = f"{directory}/{HIDDEN}/lock"
    if not exists(path):
        create(path)
    lock = open_regular(path, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise StoreLocked(f"the store {directory} is open in another process") from None
    return lock


def _check_format(directory: str) -> None:
    path = f"{directory}/{HIDDEN}/format"
    found = read_small(path, 64)
    if not found and (found is not None or not exists(path)):
        create(path, _FORMAT)
        # The one thing that a store must have: it waits for the disk when it is made.
        for made in (path, os.path.dirname(path), directory, os.path.dirname(directory)):
            fsync(made)
    elif found != _FORMAT:
        raise StoreFormat(f"{path}: this program knows only {_FORMAT.decode().strip()!r}")
