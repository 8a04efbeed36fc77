"""Filling a directory with a copy of a store: whole and verified, or not at all (spec 4.6; field report 24).

Everything is made in a hidden directory inside the target, which may be a disk of its own, synced, opened and checked;
then it moves up, the database last. So what a crash leaves is no store, and its hidden directory says what it is.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from backend.errors import CtxError, OpenError, StoreCorrupt
from backend.mirror import Mirror
from backend.system_calls import sync_file_system
from ctxfs import stores

INCOMPLETE = ".ctxfs-incomplete"
_ALWAYS_THERE = frozenset(("lost+found",))
_LAST = frozenset(("ctxfs.db", ".ctxfs"))


class BackupRefused(CtxError):
    """A directory that cannot be copied from or to."""

    exit_code = 69


@contextlib.contextmanager
def filling(target: Path) -> Iterator[Path]:
    """A directory to fill, whose content is ``target``'s when the block ends; nothing is left if it raises.

    ``target`` is made if it is missing, and becomes 0700. ``BackupRefused``, ``OSError``.
    """
    with contextlib.ExitStack() as undo:
        _make_private(target, undo)
        staging = target / INCOMPLETE
        staging.mkdir(0o700)
        undo.callback(_clear, target)
        staging.chmod(0o700)
        yield staging
        _sync(staging)
        for name in sorted(os.listdir(staging), key=lambda name: (name in _LAST, name)):
            (staging / name).rename(target / name)
        staging.rmdir()
        _sync(target)
        undo.pop_all()


def copy_closed(directory: Path, target: Path, proceed: Callable[[int], None]) -> None:
    """Copies a store that nobody has open, as it is (``OSError``)."""
    Mirror(directory, target, lambda path: path in (*_ALWAYS_THERE, *stores.LOCKS.values()), proceed).copy()


def copy_alone(directory: Path, form: stores.Format, target: Path, proceed: Callable[[int], None]) -> None:
    """Opens a store and copies it (``OpenError`` and its kinds, ``StoreFull``, ``StoreFailed``, ``OSError``)."""
    with contextlib.closing(stores.open_store(directory, form)) as store:
        store.copy(target, lambda work: work(), proceed)


def verify(directory: Path) -> None:
    """Opens the copy in ``directory`` and reads it through (``OpenError``, ``StoreCorrupt``: it is no good)."""
    form = stores.detect(directory)
    if form is None:
        raise OpenError(f"there is no store in {directory}")
    with contextlib.closing(stores.open_store(directory, form)) as store:
        if faults := store.integrity():
            raise StoreCorrupt(f"the copy is damaged: {faults[0]}: see `mountctl doctor`")
    (directory / stores.LOCKS[form]).unlink()


def _make_private(target: Path, undo: contextlib.ExitStack) -> None:
    try:
        target.mkdir(0o700)
        undo.callback(target.rmdir)
    except FileExistsError:
        _refuse_used(target)
        undo.callback(target.chmod, target.stat().st_mode & 0o7777)
    except FileNotFoundError:
        raise BackupRefused(f"{target.parent} is missing: make it first") from None
    target.chmod(0o700)


def _refuse_used(target: Path) -> None:
    if not target.is_dir():
        raise BackupRefused(f"{target} is no directory: choose another")
    if target.stat().st_uid != os.geteuid():
        raise BackupRefused(f"{target} is somebody else's: who owns it could read what is copied there")
    names = set(os.listdir(target)) - _ALWAYS_THERE
    if INCOMPLETE in names:
        raise BackupRefused(f"{target} holds a copy that was not finished: remove it, or choose another directory")
    if names:
        raise BackupRefused(f"{target} is not empty: choose another directory")


def _clear(target: Path) -> None:
    """Removes what was made; the target was empty."""
    for name in set(os.listdir(target)) - _ALWAYS_THERE:
        path = target / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file_system(descriptor)
    finally:
        os.close(descriptor)
