"""``mountctl backup``: a consistent, verified copy of a store, while it is mounted or not (spec 4.6)."""

import argparse
from collections.abc import Callable
from pathlib import Path

from ctxfs import backup, control, stores
from ctxfs.health import Health
from ctxfs.runtime import process_of
from mountctl.cli import OK, UNAVAILABLE, Failure
from mountctl.copying import place_of_copy, serving, store_of
from mountctl.progress import Progress
from mountctl.settings import add_store, config_of
from mountctl.text import bytes_text, escaped_name

DESCRIPTION = """Copies a store into DIR, which must be empty or missing: all that was committed before, and the
ordinary directories. Writers go on meanwhile. The copy is opened and checked, then it is a store like any other, for
its owner only; if anything fails, nothing is left. Exit code 69 if it is refused."""

ASK_TIMEOUT_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="an empty directory, or one that is to be made")
    add_store(parser)


def run(arguments: argparse.Namespace) -> int:
    config = config_of(arguments)
    store = store_of(config)
    target = place_of_copy(arguments.directory, store)
    health = serving(config, store)
    if health is None and stores.detect(store) is None:
        raise Failure(f"there is no store in {store}: name one with --store", UNAVAILABLE)
    total = health.figures.bytes if health and health.figures else 0
    with Progress(total) as progress, backup.filling(target) as staging:
        copied = _Count(progress.of_file())
        if health is None:
            backup.copy_alone(store, stores.choose(store, None), staging, copied.add)
        else:
            _by_daemon(health, staging, copied.at)
        backup.verify(staging)
    print(f"{escaped_name(str(store))} copied to {escaped_name(str(target))} and checked: {bytes_text(copied.bytes)}")
    return OK


class _Count:
    """Of the bytes that were copied."""

    def __init__(self, show: Callable[[int], None]) -> None:
        self.bytes = 0
        self._show = show

    def at(self, position: int) -> None:
        self.bytes = position
        self._show(position)

    def add(self, size: int) -> None:
        self.at(self.bytes + size)


def _by_daemon(health: Health, staging: Path, at: Callable[[int], None]) -> None:
    if health.files is None or health.daemon is None or process_of(health.daemon) == "stopped":
        raise Failure(f"the daemon of {health.mount.mountpoint} does not answer: see `mountctl status`", UNAVAILABLE)
    done = False
    while not done:
        answer = control.ask(health.files.socket, "backup", ASK_TIMEOUT_S, path=str(staging))
        at(answer["bytes"])
        done = answer["done"]
