"""Opening a store's directory: that it is one, of this format, and that nobody else has it open (spec 4.6)."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backend.errors import OpenError, StoreFormat, StoreLocked, StoreReadOnly
from backend.jsonl.disk import (
    DIRECTORY_MODE,
    create,
    exists,
    is_directory,
    make_directories,
    make_directory,
    open_regular,
    read_small,
)
from backend.jsonl.paths import HIDDEN

_FORMAT = b"ctxfs-jsonl 1\n"
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


def lock_directory(path: Path) -> tuple[str, int]:
    """The absolute path of the store, made if it is missing, and the descriptor that keeps others out.

    ``StoreLocked``, ``StoreFormat``, ``StoreReadOnly``, ``OpenError``.
    """
    directory = os.path.realpath(path)
    with opening(directory):
        if exists(directory) and not os.path.isdir(directory):
            raise StoreFormat(f"{directory} is not a directory")
        os.makedirs(directory, DIRECTORY_MODE, exist_ok=True)
        for name in _OTHER_STORES:
            if exists(f"{directory}/{name}"):
                raise StoreFormat(f"{directory} holds a store of another format ({name})")
        make_directories(f"{directory}/{HIDDEN}")
        if not any(is_directory(f"{directory}/{name}") for name in ("home", "shared")):
            make_directory(f"{directory}/home")
        lock = _lock(directory)
        try:
            _check_format(directory)
        except BaseException:
            os.close(lock)
            raise
    return directory, lock


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
    if not exists(path):
        create(path, _FORMAT)
        return
    found = read_small(path, 64)
    if found != _FORMAT:
        raise StoreFormat(f"{path}: this program knows only {_FORMAT.decode().strip()!r}")
