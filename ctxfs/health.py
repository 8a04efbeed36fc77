"""Whether a ctxfs mount works, judged without touching it as long as that is possible (spec 4.6, status).

The daemon's process comes first, then its control socket; only a mount whose daemon is unknown is probed, in a child
with a time limit. An answer is waited for a second, so that status answers within two beside a hung daemon, or for as
long as whoever asks has patience; only the start of the child that asks may take longer, on a busy machine
(``probe.START_TIMEOUT_S``).
"""

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from ctxfs import control, mounts, probe
from ctxfs.config import runtime_directories
from ctxfs.runtime import DaemonState, Process, RuntimeFiles, Server, process_of, runs_as

State = Literal["ok", "stopped", "dead"]

ASK_TIMEOUT_S = 1.0
DEAD = frozenset((errno.ENOTCONN, errno.ECONNABORTED))


class Health(NamedTuple):
    """``daemon`` and ``files`` are None where nobody says who serves the mount; ``server`` is then who holds its lock.

    ``figures`` is what it answered.
    """

    mount: mounts.Mount
    state: State
    daemon: DaemonState | None = None
    files: RuntimeFiles | None = None
    figures: control.Figures | None = None
    server: Server | None = None

    @property
    def process(self) -> DaemonState | Server | None:
        """Who serves the mount, as far as anybody says."""
        return self.daemon or self.server


def examine(mount: mounts.Mount, runtime_dir: Path, patience_s: float = ASK_TIMEOUT_S) -> Health:
    """The health of one mount; ``runtime_dir`` is looked through before the places its owner's daemons use.

    ``patience_s``: how long it may take to answer. A daemon whose process is stopped is known at once.
    """
    directories = (runtime_dir, *runtime_directories(mount.owner_uid or 0))
    candidates = [RuntimeFiles(directory, mount.mountpoint) for directory in directories]
    daemon, files = _daemon_of(mount, candidates)
    if daemon is None or files is None:
        holders = (one.holder() for one in candidates)
        return Health(mount, _probed(mount, patience_s), server=next(filter(None, holders), None))
    process: Process = process_of(daemon)
    if process != "running":
        return Health(mount, "stopped" if process == "stopped" else "dead", daemon, files)
    try:
        figures = control.figures(files.socket, patience_s)
    except control.ControlError:
        return Health(mount, _probed(mount, patience_s), daemon, files)
    return Health(mount, "ok", daemon, files, figures)


def is_served(health: Health) -> bool:
    """Whether the daemon lives, also once its mount is gone; one whose state file was lost still has its lock."""
    return health.process is not None and process_of(health.process) != "gone"


def _daemon_of(
    mount: mounts.Mount, candidates: Sequence[RuntimeFiles]
) -> tuple[DaemonState, RuntimeFiles] | tuple[None, None]:
    for files in candidates:
        state = files.read_state()
        if state is not None and state.device == mount.device and runs_as(state, mount.owner_uid):
            return state, files
    return None, None


def _probed(mount: mounts.Mount, patience_s: float) -> State:
    """By asking it: a mount that refuses the caller works."""
    try:
        probe.answers(mount.mountpoint, patience_s)
    except probe.HungError:
        return "stopped"
    except OSError as error:
        return "dead" if error.errno in DEAD else "ok"
    return "ok"
