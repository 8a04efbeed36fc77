"""``mountctl umount``: syncs, unmounts and waits for the daemon to end (spec 4.6; field reports 30, 32).

Success means: gone from mountinfo, and the daemon's process gone. Nothing here touches the mount itself, so a stopped
or dead one cannot hang it; a busy one stays mounted and working, and says who holds it.
"""

import argparse
import contextlib
import errno
import os
import signal
import time

from ctxfs import control, mountpoint, mounts, probe
from ctxfs.health import ASK_TIMEOUT_S, Health, examine, is_served
from ctxfs.runtime import runs_as
from mountctl.cli import ERROR, OK, UNAVAILABLE, Failure
from mountctl.settings import add_mountpoint, config_of
from mountctl.text import escaped_name

DESCRIPTION = """Syncs, unmounts and ends the daemon. Fails with exit code 69 and names the processes if the mount is in
use; with --lazy it goes at once, and whoever still uses it has until the timeout before the daemon ends. A dead mount
is cleaned away."""

_POLL_S = 0.02
_KILL_AFTER_S = 2.0
_DEATH_S = 10  # of what was killed, on a busy machine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_mountpoint(parser)
    parser.add_argument("--lazy", action="store_true", help="unmount although files are open")
    parser.add_argument("--timeout", dest="umount_timeout", type=int, metavar="S", help="seconds to wait (10)")


def run(arguments: argparse.Namespace) -> int:
    config = config_of(arguments)
    target = mountpoint.canonical(config.mountpoint)
    os.chdir("/")  # from where this was called may be the mount
    # A daemon that is merely busy has the time that unmounting has; whoever goes lazily does not wait for it.
    patience = ASK_TIMEOUT_S if arguments.lazy else max(ASK_TIMEOUT_S, config.umount_timeout)
    health = examine(_mount_of(target), config.runtime_dir, patience)
    _check_owner(health)
    if health.state == "dead":
        mountpoint.remove_dead(health)
        _wait_for_end(health, config.umount_timeout)
    elif arguments.lazy:
        _lazily(health, config.umount_timeout)
    else:
        _normally(health, config.umount_timeout)
    return OK


def _mount_of(target: str) -> mounts.Mount:
    mount = mounts.mount_at(target)
    if mount is None:
        raise Failure(f"{target} is not mounted", ERROR)
    if mount.fstype != mounts.FSTYPE:
        raise Failure(f"{target} is not a ctxfs mount but {mount.fstype}: use umount", UNAVAILABLE)
    return mount


def _check_owner(health: Health) -> None:
    owner = health.mount.owner_uid
    if os.geteuid() not in (0, owner):
        who = f"uid {owner} and root" if owner else "root"
        raise PermissionError(errno.EACCES, f"only {who} may unmount it", health.mount.mountpoint)


def _normally(health: Health, timeout_s: int) -> None:
    if health.state == "stopped":
        raise Failure(f"the daemon of {health.mount.mountpoint} is stopped: {_resume(health)}", UNAVAILABLE)
    _sync(health, timeout_s)
    try:
        mountpoint.unmount(health.mount)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise Failure(_busy(health.mount), UNAVAILABLE) from error
        raise
    _wait_for_end(health, timeout_s)


def _resume(health: Health) -> str:
    pid = health.daemon.pid if health.daemon else "PID"
    return f"kill -CONT {pid}, or umount --lazy to give up what waits for it"


def _busy(mount: mounts.Mount) -> str:
    users = mounts.holders(mount.device)
    lines = [f"  pid {pid} ({escaped_name(command)}): {how}" for pid, command, how in users]
    who = "\n".join([" by", *lines]) if lines else ", by a process you may not see or a mount below it"
    return f"{mount.mountpoint} is in use{who}\nstop them, or use --lazy"


def _sync(health: Health, timeout_s: int) -> None:
    """Nothing is left to sync where somebody else was quicker."""
    if health.files is None:
        return
    try:
        control.ask(health.files.socket, "sync", max(1, timeout_s))
    except control.ControlError:
        if mounts.is_mounted(health.mount):
            raise


def _lazily(health: Health, timeout_s: int) -> None:
    """Detaches at once; then users get ``timeout_s``, then the daemon is told to stop, then it is killed.

    Nothing is lost by the kill: what a write was answered for is committed.
    """
    connection = probe.connection(health.mount.device[1])
    mountpoint.unmount(health.mount, probe.MNT_DETACH)
    if health.state == "ok" and _ends_within(health, timeout_s):
        return
    if health.state == "ok" and health.files is not None:
        with contextlib.suppress(control.ControlError):
            control.ask(health.files.socket, "stop", 1.0)
        if _ends_within(health, _KILL_AFTER_S):
            return
    _kill(health, connection)
    _wait_for_end(health, max(_DEATH_S, timeout_s))


def _kill(health: Health, connection: int | None) -> None:
    """Also where a copy of the daemon's connection is elsewhere, and outlives it."""
    server = health.process
    if server is not None and is_served(health) and runs_as(server, health.mount.owner_uid):
        os.kill(server.pid, signal.SIGKILL)
    if connection is not None:
        probe.abort(connection)


def _wait_for_end(health: Health, timeout_s: int) -> None:
    if not _ends_within(health, timeout_s):
        pid = health.process.pid if health.process else None
        raise Failure(
            f"unmounted, but the daemon (pid {pid}) has not ended within {timeout_s} s: {_elsewhere(health.mount)}",
            UNAVAILABLE,
        )


def _elsewhere(mount: mounts.Mount) -> str:
    """What may keep the daemon of a mount that is gone."""
    binds = [
        other.mountpoint for other in mounts.mounts() if (other.device, other.source) == (mount.device, mount.source)
    ]
    if binds:
        return f"it is still mounted on {', '.join(map(escaped_name, binds))}"
    return "it may still be mounted in another mount namespace"


def _ends_within(health: Health, timeout_s: float) -> bool:
    """Waits until the mount is out of mountinfo and its daemon's process is gone."""
    deadline = time.monotonic() + timeout_s
    while mounts.is_mounted(health.mount) or is_served(health):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True
