"""``mountctl doctor``: checks a store that is not mounted, and repairs what is derived, a copy first (spec 4.6)."""

import argparse
import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from backend.doctor.faults import Fault
from backend.doctor.stores import StoreExamination
from backend.errors import OpenError, StoreCorrupt
from backend.store import DiskStore
from ctxfs import backup, stores
from mountctl.cli import ERROR, OK, UNAVAILABLE, Failure
from mountctl.copying import beside, refuse_mounted, store_of
from mountctl.ctx_doctor import text
from mountctl.session_options import add_json
from mountctl.settings import add_store, config_of
from mountctl.text import escaped_name

DESCRIPTION = """Reads a store from end to end: the database, every log, what is derived from them, and directories that
belong to nothing. Says what is wrong; exit code 1 if anything is (with --repair: if anything is left). With --repair
the store is copied first, then what is derived is made anew; logs are never changed. While a store is mounted, ctx
doctor checks it."""

_SESSION_ID = re.compile("[1-9][0-9]{0,17}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("--repair", action="store_true", help="make what is derived anew, after a copy of the store")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    config = config_of(arguments)
    store = store_of(config)
    refuse_mounted(config, store, "`ctx doctor` checks it, or mountctl umount it first")
    if stores.detect(store) is None:
        raise Failure(f"there is no store in {store}: name one with --store", UNAVAILABLE)
    found = examine(store)
    copy = None
    if arguments.repair and found["faults"]:
        copy = _copied(store)
        _repair(store, copy)
        found = examine(store)
    if arguments.json:
        print(json.dumps({**found, "copy": copy and str(copy)}))
    else:
        _tell(found, copy)
    return ERROR if found["faults"] else OK


def examine(directory: Path) -> dict[str, Any]:
    """``{faults, sessions, entries}`` of a store (docs/json.md; ``OpenError``: it cannot even be looked at)."""
    form = stores.choose(directory, None)
    try:
        with contextlib.closing(stores.open_store(directory, form)) as store:
            examination = StoreExamination(store)
            faults = [Fault("database", "", reason) for reason in (*store.integrity(), *store.drift())]
            faults += [*examination.faults(), *_orphans(store, stores.disk_directory(directory, form))]
    except StoreCorrupt as error:
        return {"faults": [msgspec.structs.asdict(Fault("database", "", str(error)))], "sessions": 0, "entries": 0}
    return {
        "faults": [msgspec.structs.asdict(fault) for fault in faults],
        "sessions": examination.sessions,
        "entries": examination.entries,
    }


def _orphans(store: DiskStore, disk: Path) -> Iterator[Fault]:
    """Ordinary directories of sessions that are gone; what is in them is somebody's, so they are only reported."""
    for context in _contexts(disk):
        if _SESSION_ID.fullmatch(context.name) and store.session_by_id(int(context.name)) is None:
            yield Fault(
                "disk", str(context.relative_to(disk)), f"its session is gone: look at {context}, and remove it"
            )


def _contexts(disk: Path) -> Iterator[Path]:
    """What may be a session's directory, in whosever space (spec 1.2)."""
    for space in _directories(disk):
        if space.name in ("home", "shared"):
            for inside in (found for owner in _directories(space) for found in _directories(owner)):
                if inside.name == "context":
                    yield from _directories(inside)


def _directories(path: Path) -> list[Path]:
    """The directories in one that the caller may see, by name; a link is none, it may lead out of the store."""
    try:
        with os.scandir(path) as entries:
            return sorted(path / entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, PermissionError):
        return []


def _copied(store: Path) -> Path:
    """A copy of the store as it is, sound or not."""
    target = beside(store, "before-repair")
    with stores.locked(store), backup.filling(target) as staging:
        backup.copy_closed(store, staging, lambda _: None)
    return target


def _repair(store: Path, copy: Path) -> None:
    try:
        with contextlib.closing(stores.open_store(store, stores.choose(store, None))) as opened:
            opened.repair()
    except OpenError as error:
        raise Failure(
            f"{error} (nothing was repaired; the store as it was is {escaped_name(str(copy))})", error.exit_code
        ) from error


def _tell(found: dict[str, Any], copy: Path | None) -> None:
    print(text(found))
    if copy is not None:
        print(f"repaired; the store as it was is {escaped_name(str(copy))}")
