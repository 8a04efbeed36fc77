"""The daemon with a bug that can be switched on: whatever the file ``fault`` beside the mountpoint names, raises.

Run in place of ``ctxfs.daemon`` (``running_mount(module=…)``). A handler of ``pyfuse3.Operations`` is named as it is
there, another place where the FUSE thread runs code as in ``PLACES``.
"""

import functools
import os
import pwd
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyfuse3

from backend.sqlite import SqliteStore
from ctxfs import daemon, fuse_thread
from ctxfs.boundary import guard_operations
from ctxfs.ctx_socket import reach, service
from ctxfs.disk_health import DiskHealth
from ctxfs.kernel_cache import KernelCache
from ctxfs.loop import Loop
from ctxfs.statistics import Statistics

PLACES = ("publishing", "showing", "commit", "sync", "user database", "maintenance", "figures", "socket", "bridge")
FATAL = "loop"
"""The one place where a bug cannot but end the mount."""


def raise_if_chosen(name: str) -> None:
    fault = Path(os.environ["CTX_ROOT"]).parent / "fault"
    if fault.exists() and fault.read_text() == name:
        raise RuntimeError(f"planted in {name}")


def faulty(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        raise_if_chosen(name)
        return function(*args, **named)

    return call


def plant_and_guard(operations: pyfuse3.Operations, statistics: Statistics, health: DiskHealth) -> None:
    for name in dir(pyfuse3.Operations):
        handler = getattr(operations, name)
        if not name.startswith("_") and callable(handler):
            setattr(operations, name, faulty(name, handler))
    guard_operations(operations, statistics, health)


if __name__ == "__main__":
    fuse_thread.guard_operations = plant_and_guard  # type: ignore[attr-defined]
    KernelCache.appended = faulty("publishing", KernelCache.appended)  # type: ignore[method-assign]
    KernelCache._shown = faulty("showing", KernelCache._shown)  # type: ignore[method-assign]
    SqliteStore.append = faulty("commit", SqliteStore.append)  # type: ignore[method-assign]
    SqliteStore.sync = faulty("sync", SqliteStore.sync)  # type: ignore[method-assign]
    SqliteStore.maintain = faulty("maintenance", SqliteStore.maintain)  # type: ignore[method-assign]
    SqliteStore.status = faulty("figures", SqliteStore.status)  # type: ignore[method-assign]
    service.status = faulty("socket", service.status)  # type: ignore[attr-defined]
    reach.space_of = faulty("bridge", reach.space_of)
    Loop._step = faulty(FATAL, Loop._step)  # type: ignore[method-assign]
    pwd.getpwuid = faulty("user database", pwd.getpwuid)
    sys.exit(daemon.main())
