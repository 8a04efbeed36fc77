"""Filling a directory with a copy of a store: whole and verified, or not at all (spec 4.6; field report 24).

Everything is made in a hidden directory inside the target, which may be a disk of its own, synced, opened and checked;
then it moves up, the database last. While the hidden directory is there nobody opens a store in the target
(``backend.unfinished``), also after a crash. What others put into the target meanwhile is neither replaced nor removed.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator, Set
from pathlib import Path

from backend.errors import CtxError, OpenError, StoreCorrupt
from backend.mirror import Mirror
from backend.system_calls import AT_FDCWD, RENAME_NOREPLACE, rename, sync_file_system
from backend.unfinished import INCOMPLETE
from ctxfs import stores

_ALWAYS_THERE = frozenset(("lost+found",))
_LAST = frozenset(("ctxfs.db", ".ctxfs"))


class BackupRefused(CtxError):
    """A directory that cannot be copied from or to."""

    exit_code = 69


@contextlib.contextmanager
def filling(target: Path) -> Iterator[Path]:
    """A directory to fill, whose content is ``target``'s when the block ends; nothing is left if it raises.

    ``target`` is made if it is missing, and becomes 0700. ``BackupRefused``, ``OSError``. Once the mark is gone, the
    store may be opened: then nothing is taken back any more.
    """
    with contextlib.ExitStack() as undo:
        staging = _make_marked(target, undo)
        undo.callback(target.chmod, target.stat().st_mode & 0o7777)
        target.chmod(0o700)
        undo.callback(shutil.rmtree, staging)
        staging.chmod(0o700)
        yield staging
        _sync(staging)
        for name in sorted(os.listdir(staging), key=lambda name: (name in _LAST, name)):
            _move(staging / name, target / name)
            undo.callback((target / name).rename, staging / name)
        _sync(target)
        staging.rmdir()
        undo.pop_all()
    _sync(target)


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


def _make_marked(target: Path, undo: contextlib.ExitStack) -> Path:
    """The hidden directory in ``target``, in which there is nothing else; from now on no store is opened there."""
    try:
        target.mkdir(0o700)
        undo.callback(stores.remove_made, [target])
    except FileExistsError:
        _refuse_used(target)
    except FileNotFoundError:
        raise BackupRefused(f"{target.parent} is missing: make it first") from None
    staging = target / INCOMPLETE
    staging.mkdir(0o700)
    undo.callback(stores.remove_made, [staging])
    _refuse_names(target, set(os.listdir(target)) - _ALWAYS_THERE - {INCOMPLETE})
    return staging


def _refuse_used(target: Path) -> None:
    if not target.is_dir():
        raise BackupRefused(f"{target} is no directory: choose another")
    if target.stat().st_uid != os.geteuid():
        raise BackupRefused(f"{target} is somebody else's: who owns it could read what is copied there")
    names = set(os.listdir(target)) - _ALWAYS_THERE
    if INCOMPLETE in names:
        raise BackupRefused(f"{target} holds a copy that was not finished: remove it, or choose another directory")
    _refuse_names(target, names)


def _refuse_names(target: Path, names: Set[str]) -> None:
    if names:
        raise BackupRefused(f"{target} is not empty: choose another directory")


def _move(source: Path, target: Path) -> None:
    """Renames, but never over another file (``BackupRefused``)."""
    try:
        rename(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), RENAME_NOREPLACE)
    except OSError as error:
        # Network file systems cannot be told not to replace.
        if error.errno == errno.EEXIST or (error.errno == errno.EINVAL and os.path.lexists(target)):
            raise BackupRefused(f"somebody else made {target} meanwhile: look what it is, and begin again") from error
        if error.errno != errno.EINVAL:
            raise
        source.rename(target)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file_system(descriptor)
    finally:
        os.close(descriptor)
