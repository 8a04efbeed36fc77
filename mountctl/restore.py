"""``mountctl restore``: puts a copy of a backup in the place of a store, and the old store aside (spec 4.6)."""

import argparse
import os
import shutil
from pathlib import Path

from backend.system_calls import AT_FDCWD, RENAME_EXCHANGE, rename
from ctxfs import backup, stores
from mountctl.cli import OK, UNAVAILABLE, Failure
from mountctl.copying import beside, place_of_copy, refuse_incomplete, refuse_mounted, store_of
from mountctl.settings import add_store, config_of
from mountctl.text import escaped_name

DESCRIPTION = """Copies the backup in DIR to where the store is, or is to be. The copy is opened and checked first; a
store that is there already is moved aside, never overwritten. Refused with exit code 69 while the store is mounted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="what `mountctl backup` made")
    add_store(parser)


def run(arguments: argparse.Namespace) -> int:
    config = config_of(arguments)
    store = store_of(config)
    source = place_of_copy(arguments.directory, store)
    refuse_mounted(config, store, "mountctl umount it first")
    refuse_incomplete(source)
    if stores.detect(source) is None:
        raise Failure(f"there is no backup in {source}", UNAVAILABLE)
    refuse_mounted(config, source, "a backup that is mounted changes; mountctl umount it first")
    if stores.detect(store) is None:
        _restored(source, store)
        aside = None
    else:
        aside = _in_its_place(source, store)
    print(f"{escaped_name(str(source))} restored to {escaped_name(str(store))}")
    if aside is not None:
        print(f"the store that was there is {escaped_name(str(aside))}")
    return OK


def _restored(source: Path, target: Path) -> None:
    with backup.filling(target) as staging:
        backup.copy_closed(source, staging, lambda _: None)
        backup.verify(staging)


def _in_its_place(source: Path, store: Path) -> Path:
    """Puts the copy where the store is; where the old one is now."""
    new, aside = beside(store, "restoring"), beside(store, "before")
    with stores.locked(store):
        _restored(source, new)
        try:
            rename(AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(store), RENAME_EXCHANGE)
        except OSError as error:
            shutil.rmtree(new)
            raise Failure(f"cannot put {new} in the place of {store}: {error.strerror}", UNAVAILABLE) from error
        new.rename(aside)
    return aside
