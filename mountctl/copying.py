"""What ``backup``, ``restore`` and ``doctor`` share: which mount serves a store, and where a copy may be."""

import os
import time
from pathlib import Path

from backend.unfinished import INCOMPLETE
from ctxfs import mountpoint, mounts
from ctxfs.config import Config
from ctxfs.health import Health, examine
from mountctl.cli import UNAVAILABLE, Failure


def store_of(config: Config) -> Path:
    """The configured store, its links resolved."""
    return Path(os.path.realpath(config.store))


def serving(config: Config, store: Path) -> Health | None:
    """The mount that serves a store, None where nobody has it open; a dead one's daemon is gone.

    Whoever may mount can give a mount any store's name: only root and the store's owner are believed.
    """
    believed = (0, _owner(store))
    for mount in mounts.ctxfs_mounts():
        if mount.owner_uid not in believed:
            continue
        health = examine(mount, config.runtime_dir)
        # The kernel's table has an ASCII form of the store's name, its daemon the name itself.
        if str(store) in (mount.source, health.daemon and health.daemon.store):
            return None if health.state == "dead" else health
    return None


def _owner(store: Path) -> int:
    """Whose a store is, or will be once the caller has made it (``OSError``)."""
    try:
        return store.stat().st_uid
    except FileNotFoundError:
        return os.geteuid()


def refuse_mounted(config: Config, store: Path, instead: str) -> None:
    """A command for closed stores only; ``instead`` says what to do."""
    health = serving(config, store)
    if health is not None:
        raise Failure(f"the store {store} is mounted on {health.mount.mountpoint}: {instead}", UNAVAILABLE)


def place_of_copy(text: str, store: Path) -> Path:
    """A directory for a copy of ``store``: neither in it, nor around it, nor on a ctxfs mount."""
    path = Path(mountpoint.canonical(text))
    if path.is_relative_to(store) or store.is_relative_to(path):
        raise Failure(f"{path} and the store {store} lie in each other: choose another directory", UNAVAILABLE)
    below = [mount for mount in mounts.mounts() if path.is_relative_to(mount.mountpoint)]
    if below and max(below, key=lambda mount: len(mount.mountpoint)).fstype == mounts.FSTYPE:
        raise Failure(f"{path} is on a ctxfs mount: choose a directory on a disk", UNAVAILABLE)
    return path


def beside(store: Path, what: str) -> Path:
    """A name beside a store's that says what it is, and of when."""
    return store.with_name(f"{store.name}.{what}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")


def refuse_incomplete(directory: Path) -> None:
    """A copy that was never finished is none."""
    if (directory / INCOMPLETE).exists():
        raise Failure(f"{directory} holds a copy that was not finished: use another one", UNAVAILABLE)
