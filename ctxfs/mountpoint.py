"""Getting a mountpoint ready, or saying why it cannot be used (spec 4.6, exit codes 3–6). Changes nothing on failure.

A dead mount is cleaned away only if it is ours: of type fuse.ctxfs, by this user (root: anyone's), its daemon gone.
"""

import errno
import itertools
import os
import time
from pathlib import Path

from backend.errors import CtxError
from ctxfs import mounts, probe
from ctxfs.health import DEAD, Health, examine, is_served
from ctxfs.runtime import AlreadyMounted

PATIENCE_S = 10.0
"""A busy machine is not a hung mount, and nothing waits for this but a mount that hangs."""

_GLANCES, _GLANCE_S = 20, 0.05


class MountpointMissing(CtxError):
    """The mountpoint is not a directory and cannot be made."""

    exit_code = 3


class MountpointNotEmpty(CtxError):
    """Mounting would hide what is there."""

    exit_code = 4


class DeadMountInTheWay(CtxError):
    """A mount that does not answer and is not ours to remove."""

    exit_code = 6


def canonical(path: str) -> str:
    """The mountpoint as mountinfo names it, its links resolved; never hangs (``DeadMountInTheWay``)."""
    absolute = os.path.abspath(path)
    if mounts.mount_at(absolute) is not None:
        return absolute
    try:
        return probe.realpath(absolute, PATIENCE_S)
    except probe.HungError:
        raise DeadMountInTheWay(f"{absolute} lies below a mount that does not answer") from None


def prepare(mountpoint: str, runtime_dir: Path) -> list[Path]:
    """Makes a canonical mountpoint usable; what had to be made (its last component or nothing)."""
    while (mount := mounts.mount_at(mountpoint)) is not None:
        if mount.fstype == mounts.FSTYPE:
            _clear_own(mount, runtime_dir)
        else:
            _refuse_dead(mount)
            break
    try:
        if not probe.is_empty(mountpoint, PATIENCE_S):
            raise MountpointNotEmpty(f"{mountpoint} is not empty: mounting would hide what is in it")
    except FileNotFoundError:
        return [_make(mountpoint)]
    except NotADirectoryError:
        raise MountpointMissing(f"{mountpoint} is not a directory") from None
    except PermissionError as error:
        raise MountpointMissing(f"{mountpoint}: {error.strerror}") from error
    except probe.HungError:
        raise DeadMountInTheWay(f"{mountpoint} lies below a mount that does not answer") from None
    return []


def unmount(mount: mounts.Mount, flags: int = 0) -> None:
    """Takes this very mount out of the tree (``OSError``, ``HungError``).

    Gone is gone: on a busy machine an answer may come late, and somebody else may have been quicker. Nobody is in the
    way who merely looks: a monitor's statfs(2) makes a mount busy for as long as the daemon takes to answer.
    """
    for attempt in itertools.count(1):
        try:
            probe.umount(mount.mountpoint, flags, PATIENCE_S)
        except OSError as error:
            if not mounts.is_mounted(mount):
                return
            if error.errno != errno.EBUSY or mounts.holders(mount.device) or attempt > _GLANCES:
                raise
        else:
            return
        time.sleep(_GLANCE_S)


def remove_dead(health: Health) -> None:
    """Aborts a dead mount's connection and takes it out of the tree; its daemon must be gone or dying (``OSError``).

    The abort comes first: while a process holds a descriptor of the connection, every look at the mount hangs, and a
    daemon may not be able to die. Where somebody else was quicker nothing is done: the place and the connection's
    number may be another mount's by now.
    """
    connection = probe.connection(health.mount.device[1])
    try:
        if not _is_still_there(health):
            return
        if connection is not None:
            probe.abort(connection)
    finally:
        if connection is not None:
            os.close(connection)
    unmount(health.mount, probe.MNT_DETACH)
    deadline = time.monotonic() + PATIENCE_S
    while is_served(health) and time.monotonic() < deadline:
        time.sleep(_GLANCE_S)
    if health.files is not None:
        health.files.clear()


def _is_still_there(health: Health) -> bool:
    """Whether a mount is the one that was found dead, and not the next one of the same store."""
    return mounts.is_mounted(health.mount) and (health.files is None or health.files.read_state() == health.daemon)


def _clear_own(mount: mounts.Mount, runtime_dir: Path) -> None:
    health = examine(mount, runtime_dir)
    where = f"{mount.mountpoint} (store {mount.source})"
    if health.state != "dead":
        stopped = "; its daemon is stopped" if health.state == "stopped" else ""
        raise AlreadyMounted(f"{where} is already mounted{stopped}: see `mountctl status`")
    if os.geteuid() not in (0, mount.owner_uid):
        raise DeadMountInTheWay(f"{where} is a dead mount of uid {mount.owner_uid}, who must unmount it")
    try:
        remove_dead(health)
    except OSError as error:
        raise DeadMountInTheWay(f"{where} is a dead mount and cannot be removed: {error.strerror}") from error


def _refuse_dead(mount: mounts.Mount) -> None:
    try:
        probe.answers(mount.mountpoint)
    except probe.HungError:
        reason = "does not answer"
    except OSError as error:
        if error.errno not in DEAD:
            return
        reason = "is dead"
    else:
        return
    raise DeadMountInTheWay(
        f"{mount.mountpoint}: a {mount.fstype} mount there {reason}; it is not ours, unmount it first"
    )


def _make(mountpoint: str) -> Path:
    path = Path(mountpoint)
    try:
        path.mkdir()
        path.chmod(0o755)
    except OSError as error:
        hint = ": make its parent first" if error.errno == errno.ENOENT else ""
        raise MountpointMissing(f"cannot make {mountpoint}: {error.strerror}{hint}") from error
    return path
