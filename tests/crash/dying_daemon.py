"""The daemon, killed in the middle of archiving or deleting a session: before the step whose number ``die`` holds.

Run in place of ``ctxfs.daemon`` (``running_mount(module=…)``). ``die`` is a file beside the mountpoint. Steps are SQL
statements of a sqlite store, changes of names and bytes on the disk, and at last the answer to the kernel.
"""

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend.sqlite import SqliteStore
from ctxfs import daemon
from ctxfs.files import passthrough_closed, passthrough_roots, sessions

CHANGES = ("pwrite", "ftruncate", "rename", "mkdir", "unlink", "utime", "rmdir")

_left: list[int] = []


def step(*_: object) -> None:
    """One step more; where none is left, the end."""
    if _left:
        if _left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        _left[0] -= 1


def arm(store: Any, steps: int) -> None:
    """From now on this process takes so many steps, and is killed."""
    for name in CHANGES:
        setattr(os, name, stepping(getattr(os, name)))
    if isinstance(store, SqliteStore):
        store._database.connection.set_trace_callback(step)
    _left[:] = [steps]


def stepping(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def stepped(*arguments: Any, **named: Any) -> Any:
        step()
        return call(*arguments, **named)

    return stepped


def begin(core: Any) -> None:
    """Counts from now on, where ``die`` says how many steps there may be."""
    chosen = Path(os.environ["CTX_ROOT"]).parent / "die"
    if chosen.exists():
        arm(core.store, int(chosen.read_text()))


def end() -> None:
    """The last step is the answer to the kernel."""
    step()
    _left.clear()


def archive(core: Any, *arguments: Any, real: Any = sessions.archive_session) -> None:
    begin(core)
    real(core, *arguments)
    end()


async def delete(core: Any, *arguments: Any, real: Any = sessions.delete_session) -> None:
    begin(core)
    await real(core, *arguments)
    end()


if __name__ == "__main__":
    sessions.archive_session = archive  # type: ignore[assignment]
    sessions.delete_session = delete  # type: ignore[assignment]
    for module in (passthrough_closed, passthrough_roots):
        module.rename = stepping(module.rename)  # type: ignore[attr-defined]
    sys.exit(daemon.main())
